-- Entries whose process has had time enough to publish them, for one relay at a time.
-- KEYS: out, lease
-- ARGV: owner, lease in ms, grace in ms, how many
if redis.call('XLEN', KEYS[1]) == 0 then return {} end
if not redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then
  if redis.call('GET', KEYS[2]) ~= ARGV[1] then return {} end
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return redis.call('XRANGE', KEYS[1], '-', string.format('%d', now - ARGV[3]), 'COUNT', ARGV[4])
