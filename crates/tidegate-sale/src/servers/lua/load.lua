-- Loads the stock of a new epoch, in steps: `fence`, `begin`, any number of `fill`, `end`.
-- Whoever finds another run or epoch here than they mean changes nothing: `fence` means those
-- that were looked at, `begin` names that epoch after the new one, and writes down the run that
-- is loaded, `fill` and `end` mean that one.
-- KEYS: meta, out, then the hash to fill, or all that has to go
-- ARGV: step, run, epoch, then what the step needs
local step, run, epoch = ARGV[1], ARGV[2], tonumber(ARGV[3])
local here = tonumber(redis.call('HGET', KEYS[1], 'epoch') or 0)
local here_run = redis.call('HGET', KEYS[1], 'run') or ''
if step == 'fence' then
  -- Nobody buys any more; what is on its way is in the outbox.
  if here ~= epoch or here_run ~= run then return 'stale' end
  -- A server that is out of memory still lets a field go.
  redis.call('HDEL', KEYS[1], 'ready')
  return 'done'
end
if step == 'begin' then
  if here ~= tonumber(ARGV[4]) or here >= epoch or redis.call('XLEN', KEYS[2]) > 0 then return 'stale' end
  for at = 3, #KEYS do redis.call('UNLINK', KEYS[at]) end
  redis.call('UNLINK', KEYS[1])
  redis.call('HSET', KEYS[1], 'ready', '0', 'epoch', ARGV[3], 'run', run)
  return 'done'
end
if here ~= epoch or here_run ~= run or redis.call('HGET', KEYS[1], 'ready') ~= '0' then return 'stale' end
if step == 'fill' then
  redis.call('HSET', KEYS[3], unpack(ARGV, 4))
else
  redis.call('HSET', KEYS[1], 'ready', '1', 'nth', '0', 'acked', '0', 'sure', '0', 'tick', '0', 'reserved', '0',
    'returned', '0', unpack(ARGV, 6))
  redis.call('PUBLISH', ARGV[4], ARGV[5])
end
return 'done'
