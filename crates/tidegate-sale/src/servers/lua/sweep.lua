-- Entries whose process has had time enough to publish them, for one relay at a time.
-- KEYS: meta, out, lease
-- ARGV: run, owner, lease in ms, grace in ms, how many, after which entry
-- Answers: after which entry to go on, or nothing; then the entries.
-- Another run than the one that was loaded: whoever loads it again publishes all of it.
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] or redis.call('XLEN', KEYS[2]) == 0 then return { '', {} } end
local holder = redis.call('GET', KEYS[3])
if holder and holder ~= ARGV[2] then return { '', {} } end
-- A server that is out of memory still deletes, and then lets the script write.
redis.call('DEL', KEYS[3])
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local entries = redis.call('XRANGE', KEYS[2], ARGV[6] == '' and '-' or '(' .. ARGV[6], '+', 'COUNT', ARGV[5])
local old = {}
for _, entry in ipairs(entries) do
  -- By its own time and not by its id: that stays ahead for as long as a clock was put back.
  local at = entry[2][3] == 't' and tonumber(entry[2][4])
  if not at or at <= now - ARGV[4] or at > now then old[#old + 1] = entry end
end
local is_all = #entries < tonumber(ARGV[5]) or #old == 0
return { is_all and '' or entries[#entries][1], old }
