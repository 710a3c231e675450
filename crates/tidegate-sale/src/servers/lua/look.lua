-- What Redis holds of one goods, at one moment, and which of these returns it has applied.
-- KEYS: meta, out, back
-- ARGV: ids of returns
local found = redis.call('HMGET', KEYS[1],
  'ready', 'run', 'epoch', 'rev', 'left', 'loaded', 'reserved', 'returned', 'tick')
for at = 1, 9 do found[at] = found[at] or '' end
found[10] = tostring(redis.call('XLEN', KEYS[2]))
found[11] = redis.call('HGET', KEYS[1], 'nth') or ''
-- The outbox's oldest entry, and the newest that it ever had.
local oldest = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
found[12] = oldest and oldest[1] or ''
local more = redis.call('HMGET', KEYS[1], 'entry', 'acked', 'sure')
for at = 1, 3 do found[12 + at] = more[at] or '' end
for at = 1, #ARGV do
  found[#found + 1] = tostring(redis.call('HEXISTS', KEYS[3], ARGV[at]))
end
return found
