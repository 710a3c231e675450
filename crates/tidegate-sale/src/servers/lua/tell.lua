-- Tells what an operator decided; what is older than what is known here changes nothing.
-- KEYS: meta
-- ARGV: epoch, channel, goods, rev, then fields and values
local meta = redis.call('HMGET', KEYS[1], 'ready', 'epoch', 'rev')
if meta[1] ~= '1' or meta[2] ~= ARGV[1] then return 'stale' end
if tonumber(meta[3]) < tonumber(ARGV[4]) then
  redis.call('HSET', KEYS[1], 'rev', ARGV[4], unpack(ARGV, 5))
  redis.call('PUBLISH', ARGV[2], ARGV[3])
end
return 'done'
