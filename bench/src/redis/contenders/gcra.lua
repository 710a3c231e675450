-- One time a key: when its bucket will be empty. A unit takes ARGV[1] microseconds to drain, and
-- the bucket holds ARGV[2] microseconds.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local empty_at = math.max(now, tonumber(redis.call('GET', KEYS[1]) or 0)) + tonumber(ARGV[1])
if empty_at - now > tonumber(ARGV[2]) then
  return 0
end
local keep_ms = math.max(1, math.ceil((empty_at - now) / 1000))
redis.call('SET', KEYS[1], string.format('%.3f', empty_at), 'PX', keep_ms)
return 1
