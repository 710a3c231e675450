-- A token bucket as a hash of four fields: capacity ARGV[1], refilled at ARGV[2] tokens a second.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local bucket = redis.call('HMGET', KEYS[1], 'capacity', 'rate', 'tokens', 'last')
local capacity = tonumber(bucket[1] or ARGV[1])
local rate = tonumber(bucket[2] or ARGV[2])
local tokens = tonumber(bucket[3] or capacity)
local last = tonumber(bucket[4] or now)
local passed = math.max(0, now - last)
tokens = math.min(capacity, tokens + passed * rate / 1000000)
if tokens < 1 then
  return 0
end
redis.call('HMSET', KEYS[1], 'capacity', capacity, 'rate', rate,
  'tokens', string.format('%.6f', tokens - 1), 'last', now)
redis.call('PEXPIRE', KEYS[1], math.max(1, math.ceil((capacity - tokens + 1) / rate * 1000)))
return 1
