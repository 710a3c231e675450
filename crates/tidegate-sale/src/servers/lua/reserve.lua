-- Buyers of one goods, decided in order. For each of them all checks come before the first
-- write, and a refusal writes nothing.
-- KEYS: meta, path, key, user, order, out
-- ARGV: run, channel, goods, then for each buyer: user, quantity, path, epoch, is expired, key
-- Answers: left, tick (which grows with every change of it), now in ms, the outbox entry, epoch, then one text a buyer; or nothing but `stale`.
local meta = redis.call('HMGET', KEYS[1],
  'ready', 'run', 'epoch', 'state', 'opens', 'closes', 'quota', 'single', 'left', 'nth', 'tick')
-- Another run of the server than the one that was loaded: it may have forgotten.
if meta[1] ~= '1' or meta[2] ~= ARGV[1] then return { 'stale' } end
local epoch, state, opens, closes = meta[3], meta[4], tonumber(meta[5]), tonumber(meta[6])
local quota, is_single = tonumber(meta[7]), meta[8] == '1'
local left, nth, tick = tonumber(meta[9]), tonumber(meta[10]), tonumber(meta[11])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local phase = 'open'
if state == 'closed' or (closes and now >= closes) then
  phase = 'closed'
elseif state == 'paused' then
  phase = 'paused'
elseif state == 'warm' and not (opens and now >= opens) then
  phase = 'early'
end

local answers, granted, records, taken = { '', '', '', '', epoch }, {}, {}, 0

-- What all of them find, in one look at each hash; what they write, likewise at the end.
local function found(key, offset)
  local names, all = {}, {}
  for at = 4, #ARGV, 6 do names[#names + 1] = ARGV[at + offset] end
  local values = redis.call('HMGET', key, unpack(names))
  for nth, name in ipairs(names) do all[name] = values[nth] or nil end
  return all
end
local paths, bought = found(KEYS[2], 2), found(KEYS[4], 0)
local names, new_paths, new_names, new_bought, count = {}, {}, {}, {}, 0

-- The order of one who came before, with its entry while that is still in the outbox.
local function again(sn)
  local order = redis.call('HGET', KEYS[5], sn)
  if not order then return 'again:' .. sn .. ':' .. (granted[sn] and '*' or '') end
  local entry = string.match(order, '^[^:]*')
  local waits = #redis.call('XRANGE', KEYS[6], entry, entry) > 0
  return 'again:' .. sn .. ':' .. (waits and entry or '')
end

local function decide(user, quantity, path, of_epoch, is_expired, key)
  local used = paths[path]
  if used then
    local sn, by = string.match(used, '^([^:]*):(.*)$')
    return by == user and again(sn) or 'path'
  end
  local name = user .. ':' .. key
  local sn = key ~= '' and (names[name] or redis.call('HGET', KEYS[3], name))
  if sn then return again(sn) end
  if phase ~= 'open' then return phase end
  if of_epoch ~= epoch or is_expired == '1' then return 'path' end
  if quantity < 1 or quantity > quota then return 'much' end
  local units = tonumber(bought[user] or 0)
  if units + quantity > quota or (is_single and units > 0) then return 'quota' end
  if quantity > left then return 'sold' end
  nth = nth + 1
  left = left - quantity
  taken = taken + quantity
  -- All of these are below 10^14, and so written in digits.
  sn = epoch .. '-' .. nth
  local used_by = sn .. ':' .. user
  paths[path], bought[user], granted[sn] = used_by, units + quantity, quantity .. ':' .. user
  count = count + 2
  new_paths[count - 1], new_paths[count] = path, used_by
  new_bought[count - 1], new_bought[count] = user, units + quantity
  records[count - 1], records[count] = 'o', nth .. ':' .. quantity .. ':' .. path .. ':' .. name
  if key ~= '' then
    names[name] = sn
    new_names[#new_names + 1] = name
    new_names[#new_names + 1] = sn
  end
  return 'new:' .. sn
end

for at = 4, #ARGV, 6 do
  answers[#answers + 1] =
    decide(ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5])
end

local at = string.format('%d', now)
if taken > 0 then
  local entry = redis.call('XADD', KEYS[6], '*', 'e', epoch, 't', at, unpack(records))
  local orders, of, prefix = {}, 0, entry .. ':' .. at .. ':'
  for sn, order in pairs(granted) do
    of = of + 2
    orders[of - 1], orders[of] = sn, prefix .. order
  end
  redis.call('HSET', KEYS[2], unpack(new_paths))
  if #new_names > 0 then redis.call('HSET', KEYS[3], unpack(new_names)) end
  redis.call('HSET', KEYS[4], unpack(new_bought))
  redis.call('HSET', KEYS[5], unpack(orders))
  tick = tick + 1
  redis.call('HSET', KEYS[1], 'left', string.format('%d', left), 'nth', string.format('%d', nth),
    'tick', string.format('%d', tick), 'entry', entry)
  redis.call('HINCRBY', KEYS[1], 'reserved', taken)
  answers[4] = entry
  -- The last one is gone: everybody is to know.
  if left <= 0 then redis.call('PUBLISH', ARGV[2], ARGV[3]) end
end
answers[1], answers[2], answers[3] = string.format('%d', left), string.format('%d', tick), at
return answers
