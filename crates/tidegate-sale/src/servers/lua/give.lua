-- Applies what the database gave back, each once. Another epoch has it in its stock already.
-- KEYS: meta, user, back
-- ARGV: run, epoch, channel, goods, then for each: id, user or nothing where stock was added, units
local meta = redis.call('HMGET', KEYS[1], 'ready', 'run', 'epoch')
if meta[1] ~= '1' or meta[2] ~= ARGV[1] or meta[3] ~= ARGV[2] then return 'stale' end
for at = 5, #ARGV, 3 do
  local id, user, units = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  if redis.call('HSETNX', KEYS[3], id, '1') == 1 then
    redis.call('HINCRBY', KEYS[1], 'left', units)
    redis.call('HINCRBY', KEYS[1], user == '' and 'loaded' or 'returned', units)
    if user ~= '' and redis.call('HINCRBY', KEYS[2], user, -units) <= 0 then
      redis.call('HDEL', KEYS[2], user)
    end
  end
end
redis.call('HINCRBY', KEYS[1], 'tick', 1)
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 'done'
