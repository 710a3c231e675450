-- Tells what an operator decided; what is older than what is known here changes nothing.
-- KEYS: meta
-- ARGV: run, epoch, channel, goods, rev, then fields and values
local meta = redis.call('HMGET', KEYS[1], 'ready', 'run', 'epoch', 'rev')
if meta[1] ~= '1' or meta[2] ~= ARGV[1] or meta[3] ~= ARGV[2] then return 'stale' end
if tonumber(meta[4]) < tonumber(ARGV[5]) then
  redis.call('HSET', KEYS[1], 'rev', ARGV[5], unpack(ARGV, 6))
  redis.call('PUBLISH', ARGV[3], ARGV[4])
end
return 'done'
