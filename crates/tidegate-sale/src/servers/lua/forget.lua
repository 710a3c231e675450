-- The broker has confirmed an entry: it leaves the outbox, and its numbers are acknowledged.
-- KEYS: meta, out
-- ARGV: run, entry, epoch, its last number
local meta = redis.call('HMGET', KEYS[1], 'run', 'epoch', 'nth', 'acked')
-- Nobody has loaded an outbox whose meta is gone.
if (meta[1] or '') ~= ARGV[1] then return 'stale' end
redis.call('XDEL', KEYS[2], ARGV[2])
if meta[2] ~= ARGV[3] then return 'done' end
-- All numbers before the oldest entry that waits have been confirmed.
local sure = meta[3]
local oldest = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
if oldest then
  sure = string.format('%d', (tonumber(string.match(oldest[2][6] or '', '^%d+')) or 1) - 1)
end
local acked = tonumber(meta[4] or 0) < tonumber(ARGV[4]) and ARGV[4] or meta[4]
redis.call('HSET', KEYS[1], 'acked', acked, 'sure', sure)
return 'done'
