-- Loads the stock of a new epoch, in steps: `fence`, `begin`, any number of `fill`, `end`.
-- Whoever finds another epoch here than the one that they mean changes nothing: `fence` means
-- the one that was looked at, `begin` names it after the new one.
-- KEYS: meta, out, then the hash to fill, or all that has to go
-- ARGV: step, epoch, then what the step needs
local step, epoch = ARGV[1], tonumber(ARGV[2])
local here = tonumber(redis.call('HGET', KEYS[1], 'epoch') or 0)
if step == 'fence' then
  -- Nobody buys any more; what is on its way is in the outbox.
  if here ~= epoch then return 'stale' end
  -- A server that is out of memory still lets a field go.
  redis.call('HDEL', KEYS[1], 'ready')
  return 'done'
end
if step == 'begin' then
  if here ~= tonumber(ARGV[3]) or here >= epoch or redis.call('XLEN', KEYS[2]) > 0 then return 'stale' end
  for at = 3, #KEYS do redis.call('UNLINK', KEYS[at]) end
  redis.call('UNLINK', KEYS[1])
  redis.call('HSET', KEYS[1], 'ready', '0', 'epoch', ARGV[2])
  return 'done'
end
if here ~= epoch or redis.call('HGET', KEYS[1], 'ready') ~= '0' then return 'stale' end
if step == 'fill' then
  redis.call('HSET', KEYS[3], unpack(ARGV, 3))
else
  redis.call('HSET', KEYS[1], 'ready', '1', 'nth', '0', 'tick', '0', 'reserved', '0', 'returned', '0', unpack(ARGV, 5))
  redis.call('PUBLISH', ARGV[3], ARGV[4])
end
return 'done'
