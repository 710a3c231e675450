-- What Redis holds of one goods, at one moment, and which of these returns it has applied.
-- KEYS: meta, out, back
-- ARGV: ids of returns
local found = redis.call('HMGET', KEYS[1],
  'ready', 'run', 'epoch', 'rev', 'left', 'loaded', 'reserved', 'returned', 'tick')
for at = 1, 9 do found[at] = found[at] or '' end
found[10] = tostring(redis.call('XLEN', KEYS[2]))
for at = 1, #ARGV do
  found[#found + 1] = tostring(redis.call('HEXISTS', KEYS[3], ARGV[at]))
end
return found
