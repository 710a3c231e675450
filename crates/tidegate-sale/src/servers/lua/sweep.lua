-- Entries whose process has had time enough to publish them, for one relay at a time.
-- KEYS: out, lease
-- ARGV: owner, lease in ms, grace in ms, how many, after which entry
-- Answers: after which entry to go on, or nothing; then the entries.
if redis.call('XLEN', KEYS[1]) == 0 then return { '', {} } end
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[1] then return { '', {} } end
-- A server that is out of memory still deletes, and then lets the script write.
redis.call('DEL', KEYS[2])
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local entries = redis.call('XRANGE', KEYS[1], ARGV[5] == '' and '-' or '(' .. ARGV[5], '+', 'COUNT', ARGV[4])
local old = {}
for _, entry in ipairs(entries) do
  -- By its own time and not by its id: that stays ahead for as long as a clock was put back.
  local at = entry[2][3] == 't' and tonumber(entry[2][4])
  if not at or at <= now - ARGV[3] or at > now then old[#old + 1] = entry end
end
local is_all = #entries < tonumber(ARGV[4]) or #old == 0
return { is_all and '' or entries[#entries][1], old }
