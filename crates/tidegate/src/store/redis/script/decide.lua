-- The transitions of every kind of limit, as in src/algorithm, on the server's clock.
--
-- The client replaces the names KIND_*, MODE_*, OP_*, TAG_*, QUEUED_*, RENEWED_* and the rest that
-- numbers.rs declares by their values when it loads this text.
--
-- One call carries any number of operations, done in order at one instant.
--
-- KEYS     the keys of all operations, in order: one for a key of a rate; three for a key of
--          slots (holders, queue, waiters alive); one for a heartbeat.
-- ARGV[1]  one flat MessagePack array of numbers and texts:
--          the time in microseconds, or -1 for the server's;
--          how many limits, and 11 items for each: its kind, five numbers of it, its tag, for how
--          many microseconds it has been in force on this node, and the positions in this list of
--          up to three limits that were in force before it (0 for none), oldest first;
--          1 if every operation reads one key that no other one has, otherwise 0;
--          how many operations, and each one: its number, then what its comment below says.
--          A limit is given by its position in the list.
-- returns  one flat array: the time, and for each operation 0 and what its comment says, or the
--          error instead.
--
-- The answer is what was found, and how much was taken of it. What a caller hears (waits,
-- retry, what is left) is computed from that by the client, see replay.rs.
--
-- Times are whole microseconds; no number reaches 2^53, so nothing is rounded.

local a, at = cmsgpack.unpack(ARGV[1]), 3
local arguments = a
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local find, sub, match, format = string.find, string.sub, string.match, string.format
local call, pcall, names = redis.call, redis.pcall, KEYS
local pack_numbers, unpack_numbers = struct.pack, struct.unpack
local OTHER = 'TIDEGATE the key holds something else'

local now, keep_ms = a[1], 3600000
if now < 0 then
  local time = call('TIME')
  now, keep_ms = tonumber(time[1]) * 1000000 + tonumber(time[2]), 0
end

local out, outs = { now }, 1
local function reply(value) outs = outs + 1; out[outs] = value end

-- Limits by their position, and how many of the keys have been used.
local plans, key = {}, 0
for n = 1, a[2] do
  local number, b, c, d, e, f = a[at], a[at + 1], a[at + 2], a[at + 3], a[at + 4], a[at + 5]
  local p = { number = number, tag = a[at + 6] }
  if number == KIND_BUCKET then
    p.cell, p.drain, p.burst, p.full, p.full_us = b, c, d, e, floor(e / c)
  elseif number == KIND_STEPPED then
    p.amount, p.tick_us, p.cap, p.wait_us, p.phase, p.full = b, c, d, e, f, d + b * ceil(e / c)
  elseif number == KIND_WARM_UP then
    p.cell, p.drain, p.cold, p.wait, p.furthest = b, c, d * c, e * c, (d + e) * c
  elseif number == KIND_SLICES then
    p.amount, p.slice_us, p.span, p.wait_us = b, c, d, e
  else
    p.amount, p.queue, p.lease_us, p.waiter_us = b, c, d, e
  end
  p.since, p.before, p.is_first = now - a[at + 7], at + 8, a[at + 8] == 0
  plans[n] = p
  at = at + 11
end

-- A bucket has a level in ticks. Nearly every call is about buckets that only this limit counts:
-- what those need is made in every call, and everything else only in a call that needs it. Here is
-- all that a check of a bucket computes, for both.

-- The level after `us`, which is below zero if the clock ran back. No grant could have put it
-- above a full one.
local function drained(p, level, us)
  if us >= 0 then
    level = level - us * p.drain
    if level <= 0 then return 0 end
    return level <= p.full and level or p.full
  end
  if floor(level / p.drain) - us > p.full_us then return p.full end
  return min(level - us * p.drain, p.full)
end

-- The level up to which checks may start.
local function bucket_cap(p, mode) return mode == MODE_RESERVE and p.full or p.burst end

-- How many of `count` checks fit that add `added` each.
local function bucket_fit(p, level, added, mode, count)
  return max(min(floor((bucket_cap(p, mode) - level) / added), count), 0)
end

-- The text of a key that one limit counts, a bucket: the time and the level, eight bytes each,
-- and the tag. Its first byte is never a digit, as that of every other text is.
local function write_bucket(p, name, level, is_new)
  local text = pack_numbers('>dd', now, level) .. p.tag
  local ms = format('%d', max(floor(level / p.drain / 1000) + 2, keep_ms))
  if not is_new then return pcall('SET', name, text, 'PX', ms).err end
  -- What seems new may hold something else than a text: that is not written, and is an error.
  local before = pcall('SET', name, text, 'PX', ms, 'GET')
  return type(before) == 'table' and before.err
end

-- The level by such a text of this limit, which nothing else counts; nil if it is anything else.
local function level_of(p, text)
  if not text then return 0 end
  if type(text) ~= 'string' or sub(text, 17) ~= p.tag then return nil end
  local written, level = unpack_numbers('>dd', text)
  -- Digits, read as a number, are nearly zero. Limits that were in force here since the text was
  -- written have a say.
  if not (written >= 1 and written <= now) or (written < p.since and not p.is_first) then return nil end
  return level <= p.full and drained(p, level, now - written) or nil
end

-- Everything else: the other kinds and operations, and keys that several limits count.
local function the_rest()
  -- Milliseconds that a state is kept which is as good as none after `us`.
  local function keep(us) return format('%d', max(ceil(us / 1000) + 1, keep_ms)) end

  -- x * y / c, rounded up. x, y and c are below 2^52, and so is the result.
  local function times_over(x, y, c)
    local product = x * y
    if product < EXACT then return ceil(product / c) end
    local whole, rest = floor(y / c), y % c
    local q, r, bit = 0, 0, 2251799813685248
    while bit >= 1 do
      q, r = q * 2, r * 2
      if r >= c then q, r = q + 1, r - c end
      if x >= bit then
        x, q, r = x - bit, q + whole, r + rest
        if r >= c then q, r = q + 1, r - c end
      end
      bit = bit / 2
    end
    return r > 0 and q + 1 or q
  end

  -- Ticks that `spent` permits cost out of `stored`: the trapezoid of a warm-up.
  local function price(cold, stored, spent)
    local upper = ceil(cold / 2)
    local above = max(stored - (cold - upper), 0)
    local dear = min(spent, above)
    if dear == 0 then return spent end
    return spent + times_over(dear, 2 * above - dear, upper)
  end

  local function base36(text) return text and text ~= '' and tonumber(text, 36) or nil end

  -- Each kind of rate has, for a state `s` as of the time `s.at`:
  --   advance(p, s)     brings it up to now
  --   used(p, s, t)     millionths of a unit in use at `t`, rounded up
  --   convert(p, t, m)  the state as of `t` of a key that has used so much, at most a full one
  --   idle_at(p, s)     the time from when on it is as good as none
  --   charge_debt(p, s, units)   charges units, as of now, up to a full key
  --   head(p, s)        its text, as of now, and read(p, head, at) the state of such a text
  -- and, for a state as of now:
  --   load(p, name)                    the state, or nil and an error
  --   fits(p, s, cost, mode)           up to two values for apply; nil if it does not fit
  --   apply(s, x, y, units, member)    takes what fits
  --   take(p, s, cost, mode, count)    does both for equal checks, where that is quicker than one
  --                                    after the other; how many were taken
  --   reply_found(p, s)                replies what was found, before anything was taken
  --   save(p, s, name)                 writes it; returns an error if the server takes no writes
  --   refund(p, s, ...)                see OP_REFUND
  -- A kind is made when it is first needed.
  local makers = {}
  local kinds = setmetatable({}, { __index = function(kinds, number)
    kinds[number] = makers[number]()
    return kinds[number]
  end })

  local function load(p)
    key = key + 1
    if p.number ~= KIND_SLOTS then return kinds[p.number].load(p, names[key]) end
    key = key + 2
    return kinds[p.number].load(p, names[key - 2], names[key - 1], names[key])
  end

  -- Writes what changed; returns an error if the server takes no writes, unless only what no
  -- longer counts was to be forgotten: that can wait.
  local function save(p, s, name)
    if not s.dirty and not s.repaired then return nil end
    local err = kinds[p.number].save(p, s, name)
    return s.dirty and err
  end

  -- `units` were granted: other limits' counts of the key are charged them when it is saved.
  local function charged(s, units) s.charged, s.dirty = (s.charged or 0) + units, true end

  -- The numbers of the limit that wrote a state, by its tag (in base 36):
  --   b cell/full[/drain[/rest]]     a bucket; full in units, and the ticks beyond those
  --   t amount/tick/full[/phase]     ticked refill, fixed window
  --   w cell/drain/warmup/wait       warm-up
  --   l slice/span/wait              slices; their amount stands in the head
  local function limit_of(tag)
    local letter, v, x, y, z = match(tag, '^(%a)(%w+)/(%w+)/?(%w*)/?(%w*)$')
    if not letter then return nil end
    v, x, y, z = base36(v), base36(x), base36(y), base36(z)
    if letter == TAG_BUCKET then
      local cell, drain, fine = v, y or 1, 1
      -- As in replay.rs: ticks are finer than in lowest terms, where the numbers allow it.
      while cell * fine < MILLIONTHS and (x + 1) * cell * fine * 10 < EXACT do fine = fine * 10 end
      cell, drain = cell * fine, drain * fine
      local full = x * cell + (z or 0) * fine
      return { number = KIND_BUCKET, tag = tag, cell = cell, drain = drain, full = full, full_us = floor(full / drain), fine = fine }
    elseif letter == TAG_STEPPED and y then
      return { number = KIND_STEPPED, tag = tag, amount = v, tick_us = x, full = y, phase = z or 0 }
    elseif letter == TAG_WARM_UP and z then
      return { number = KIND_WARM_UP, tag = tag, cell = v, drain = x, cold = y * x, furthest = (y + z) * x }
    elseif letter == TAG_SLICES and y then
      return { number = KIND_SLICES, tag = tag, slice_us = v, span = x, wait_us = y }
    end
  end

  -- A key's text, if it is not one of `write_bucket`, is `written+state` and, where other limits count it too, `;expires+state` for
  -- each of those and `;m…` for what was merged. A state is a head, as of the time when the
  -- key was written, and the tag of its limit.
  local function count_of(text, at)
    local head, tag = match(text, '^([%d:,%-]+)(%a[%w/]+)$')
    local p = tag and limit_of(tag)
    local s = p and kinds[p.number].read(p, head, at)
    return s and { p = p, s = s, tag = tag }
  end

  -- Reads a text of `write_bucket`. False if it is none.
  local function read_packed(k, text)
    local tag = sub(text, 17)
    local p = limit_of(tag)
    if not p or p.number ~= KIND_BUCKET then return false end
    local written, level = unpack_numbers('>dd', text)
    local is_whole = written % 1 == 0 and level % 1 == 0
    if not is_whole or min(written, level) < 0 or max(written, level) >= 9007199254740992 then return false end
    k.written, k.main = written, { p = p, s = { at = written, level = level }, tag = tag }
    return k
  end

  -- Reads what stands behind the first state. False if it makes no sense.
  local function read_others(k, text)
    for part in string.gmatch(text, '[^;]+') do
      local units, from, till, steps = match(part, '^m(%d+):(%d+):(%d+):(%d)$')
      if units then
        if tonumber(till) > now then
          k.merged = { units = tonumber(units), from = tonumber(from), till = tonumber(till), steps = steps == '1' }
        end
      else
        local expires, state = match(part, '^(%d+)%+(.*)$')
        local count = state and count_of(state, k.written)
        if not count then return false end
        count.expires = tonumber(expires)
        if count.expires > now then k.others[#k.others + 1] = count end
      end
    end
    return true
  end

  -- What earlier releases wrote: a state without a time, and perhaps
  -- `+units@created~until` of another limit.
  local function old_key(k, text)
    local plain, units, created, till = match(text, '^(.*)%+(%d+)@(%-?%d+)~(%-?%d+)$')
    if plain and tonumber(till) > now then
      k.merged = { units = units * MILLIONTHS, from = tonumber(created), till = tonumber(till), steps = true }
    end
    local head, tag = match(plain or text, '^([%d:%-]+)(%a[%w/]+)$')
    local p = tag and limit_of(tag)
    if not p then return nil end
    local x, y, z = match(head, '^(%-?%d+):?(%d*):?(%d*)$')
    x, y, z = tonumber(x), tonumber(y) or 0, tonumber(z)
    if not x then return nil end
    local s = { at = now }
    if p.number == KIND_BUCKET then
      s.level = x - now > p.full_us and p.full or min(max((x - now) * p.drain + y * p.fine, 0), p.full)
    elseif p.number == KIND_STEPPED then
      s.level = min(max(y + (x - floor(now / p.tick_us)) * p.amount, 0), p.full)
    elseif p.number == KIND_WARM_UP and z then
      s.base, s.stored, s.used = min((x - now) * p.drain + y, p.furthest), z, 1
    else
      return nil
    end
    k.main = { p = p, s = s, tag = tag }
    return k
  end

  local function old_or_new(first)
    local plain = match(first, '^(%w+/[%w/]+)')
    return plain, sub(first, #(plain or '') + 1)
  end

  -- Reads the entries of a list.
  local function read_entries(k, name)
    local s = { at = k.written, slices = {}, units = {}, n = 0, total = k.total }
    local list = call('LRANGE', name, 2, -1)
    for i = 1, #list, 2 do
      s.n = s.n + 1
      s.slices[s.n], s.units[s.n] = tonumber(list[i]), tonumber(list[i + 1])
    end
    k.main.s = s
  end

  -- A key: when it was written, the count of the limit that wrote it, and those of others.
  -- Nil if there is none, false if it holds something else. The entries of a list are not read
  -- for a limit of this tag, which wrote it.
  local function key_of(name, tag)
    local k = { written = 0, others = {}, made = {} }
    -- Limits that mostly write a list look for one first.
    local head = tag and pcall('LRANGE', name, 0, 1)
    if not head or head.err then
      local text = pcall('GET', name)
      if not text then return nil end
      if type(text) == 'string' then
        if not find(text, '^%d') then return read_packed(k, text) end
        local written, rest = match(text, '^(%d+)%+(.*)$')
        if not written then return old_key(k, text) or false end
        k.written = tonumber(written)
        local state, others = match(rest, '^([^;]*);?(.*)$')
        k.main = count_of(state, k.written)
        if not k.main or not read_others(k, others) then return false end
        return k
      end
      head = head or pcall('LRANGE', name, 0, 1)
    end
    if head.err then return false end
    if #head == 0 then return nil end
    if not head[2] then return false end
    local plain, rest = old_or_new(head[1])
    local p = plain and limit_of(plain)
    if not p or p.number ~= KIND_SLICES then return false end
    local total, written, amount = match(head[2], '^(%d+)@?(%d*)/?(%d*)$')
    if not total then return false end
    k.written, k.total, k.is_shared = tonumber(written) or 0, tonumber(total), rest ~= ''
    local units, created, till = match(rest, '^%+(%d+)@(%-?%d+)~(%-?%d+)$')
    if units then
      if tonumber(till) > now then
        k.merged = { units = units * MILLIONTHS, from = tonumber(created), till = tonumber(till), steps = true }
      end
    elseif not read_others(k, rest) then
      return false
    end
    p.amount = tonumber(amount) or k.total
    k.main = { p = p, tag = plain }
    if plain ~= tag then read_entries(k, name) end
    return k
  end

  local function counts(k)
    local all = {}
    if k.main.s then all[1] = k.main end
    for _, count in ipairs(k.others) do all[#all + 1] = count end
    for _, count in ipairs(k.made) do all[#all + 1] = count end
    return all
  end

  local function count_for(k, tag)
    for _, count in ipairs(counts(k)) do if count.tag == tag then return count end end
  end

  -- True if nothing of a key counts any more: it is as good as none.
  local function is_over(k)
    for _, count in ipairs(counts(k)) do
      if kinds[count.p.number].idle_at(count.p, count.s) > now then return false end
    end
    return not k.merged
  end

  -- The most that any count has in use at `t`.
  local function most_used(k, t)
    local most, merged = 0, k.merged
    if merged and t < merged.till then
      most = merged.units
      if not merged.steps and t > merged.from then
        most = times_over(most, merged.till - t, merged.till - merged.from)
      end
    end
    for _, count in ipairs(counts(k)) do
      most = max(most, kinds[count.p.number].used(count.p, count.s, t))
    end
    return most
  end

  -- The state that a limit starts from. Each limit counts for itself all that a key is granted;
  -- one that has no count yet, or came into force after the last grant, starts from the most
  -- that any other holds, as of then.
  local function start(p, k)
    local written = min(k.written, now)
    local chain = {}
    for i = p.before, p.before + 2 do chain[#chain + 1] = plans[arguments[i]] end
    for i, q in ipairs(chain) do
      local ends = (chain[i + 1] or p).since
      local from = max(q.since, written)
      if ends > from and not count_for(k, q.tag) then
        k.made[#k.made + 1] = { p = q, s = kinds[q.number].convert(q, from, most_used(k, from)), tag = q.tag }
      end
    end
    local own, kind = count_for(k, p.tag), kinds[p.number]
    -- Whoever wrote at the very instant of a change did so before it, unless it was this limit.
    if p.since < written or (p.since == written and k.main.tag == p.tag) then
      return own and own.s or kind.convert(p, written, most_used(k, written))
    end
    local most = most_used(k, p.since)
    if own and kind.used(p, own.s, p.since) >= most then return own.s end
    return kind.convert(p, p.since, most)
  end

  -- The text of the others of a key that is written under `p`, which was granted `units`; and
  -- until when they count.
  local function others_of(p, k, units)
    local kept, till = {}, 0
    local function add(count, expires)
      if not count.s or count.tag == p.tag then return end
      local kind = kinds[count.p.number]
      kind.advance(count.p, count.s)
      count.expires = expires or max(kind.idle_at(count.p, count.s), now + KEPT_US)
      if units > 0 then kind.charge_debt(count.p, count.s, units) end
      if kind.coarsen then kind.coarsen(count.p, count.s) end
      kept[#kept + 1] = count
    end
    for _, count in ipairs(k.others) do add(count, count.expires) end
    add(k.main)
    for _, count in ipairs(k.made) do add(count) end
    local merged = k.merged
    while #kept > OTHERS_MAX do
      local first = 1
      for i = 2, #kept do if kept[i].expires < kept[first].expires then first = i end end
      local count = table.remove(kept, first)
      local kind = kinds[count.p.number]
      local used, ends = kind.used(count.p, count.s, now), kind.idle_at(count.p, count.s)
      if used > 0 then
        local steps = count.p.number == KIND_STEPPED or count.p.number == KIND_SLICES
        if merged then
          local k = { others = {}, made = {}, main = {}, merged = merged }
          used, ends, steps = max(used, most_used(k, now)), max(ends, merged.till), steps or merged.steps
        end
        merged = { units = used, from = now, till = ends, steps = steps }
      end
    end
    local text = ''
    for _, count in ipairs(kept) do
      local kind = kinds[count.p.number]
      text = text .. format(';%d+%s%s', count.expires, kind.head(count.p, count.s), count.tag)
      till = max(till, kind.idle_at(count.p, count.s))
    end
    if merged then
      text = text .. format(';m%d:%d:%d:%d', merged.units, merged.from, merged.till, merged.steps and 1 or 0)
      till = max(till, merged.till)
    end
    return text, till
  end

  -- Loads a key of a kind whose states are texts.
  local function load_text(p, name)
    local k = key_of(name, nil)
    if k == false then return nil, OTHER end
    local kind = kinds[p.number]
    if not k or is_over(k) then return kind.convert(p, now, 0) end
    local s = start(p, k)
    s.k, s.is_main = k, k.main.s == s
    kind.advance(p, s)
    -- Written also by a denial: the clock ran back, and this limit drains from now on.
    s.repaired = s.repaired or (k.written > now and not s.is_main)
    return s
  end

  -- Writes a state as a text, with what other limits count.
  local function save_text(p, s, name, is_unused)
    local kind = kinds[p.number]
    local others, till = '', 0
    if s.k then others, till = others_of(p, s.k, s.charged or 0) end
    if others == '' then
      if is_unused then call('DEL', name) return nil end
      if p.number == KIND_BUCKET then return write_bucket(p, name, s.level) end
    end
    local text = format('%d+%s%s%s', now, kind.head(p, s), p.tag, others)
    return pcall('SET', name, text, 'PX', keep(max(kind.idle_at(p, s), till) - now)).err
  end

  -- Token bucket, leaky bucket, leaky queue: a level in ticks.
  makers[KIND_BUCKET] = function()
    local kind = {}

    local function level_at(p, s, t) return drained(p, s.level, t - s.at) end

    function kind.advance(p, s)
      local level = level_at(p, s, now)
      s.repaired = s.at > now and level < s.level + (s.at - now) * p.drain or s.level > p.full
      s.level, s.before, s.at = level, level, now
    end

    function kind.used(p, s, t) return times_over(level_at(p, s, t), MILLIONTHS, p.cell) end

    function kind.convert(p, t, millionths)
      local level = p.full
      if millionths < (floor(p.full / p.cell) + 1) * MILLIONTHS then
        level = min(times_over(millionths, p.cell, MILLIONTHS), p.full)
      end
      return { at = t, level = level, before = level }
    end

    function kind.idle_at(p, s) return s.at + ceil(s.level / p.drain) end

    function kind.head(p, s)
      local us = floor(s.level / p.drain)
      local fraction = s.level - us * p.drain
      if fraction > 0 then return format('%d:%d', us, fraction) end
      return format('%d', us)
    end

    function kind.read(p, head, at)
      local us, fraction = match(head, '^(%d+):?(%d*)$')
      if not us then return nil end
      return { at = at, level = us * p.drain + (tonumber(fraction) or 0) }
    end

    -- A key that only this limit counts needs no more than its level.
    function kind.load(p, name)
      local level = level_of(p, pcall('GET', name))
      if not level then return load_text(p, name) end
      return { at = now, level = level, before = level, is_main = level > 0 }
    end

    function kind.fits(p, s, cost, mode)
      local level = s.level + cost * p.cell
      if level <= bucket_cap(p, mode) then return level end
    end

    function kind.take(p, s, cost, mode, count)
      local fit = bucket_fit(p, s.level, cost * p.cell, mode, count)
      if fit > 0 then
        s.level = s.level + fit * cost * p.cell
        charged(s, fit * cost)
      end
      return fit
    end

    function kind.apply(s, level, _, units)
      s.level = level
      charged(s, units)
    end

    function kind.save(p, s, name) return save_text(p, s, name, s.level == 0) end

    function kind.reply_found(p, s) reply(s.before) end

    -- Each refund: the units that are charged, when they start, their mark, the units that
    -- come back. Tells whether they did, and the new mark of the last. `m3` is how far the
    -- charge moved the state, `m4` what a warm-up had in store before it.
    function kind.refund(p, s, cost, start, m1, m2, m3, m4, units)
      local is_last = (m1 - now) * p.drain + m2 == s.level
      local back = min(units, cost) * p.cell
      if now < start then
        if not is_last then return false end
        if units >= cost then
          back = m3
        elseif now + ceil((s.level - back - p.burst) / p.drain) < start then
          -- The rest of it would start earlier than it does.
          return false
        end
      else
        -- Above the burst a caller waits that was promised a start on top of this.
        if s.level > p.burst then return false end
        -- What has flowed back by itself since may be granted to others already.
        back = min(back, cost * p.cell - (now - start) * p.drain, (m1 - now) * p.drain + m2)
        if back <= 0 then return false end
      end
      local ends = (m1 - now) * p.drain + m2 - back
      s.level, s.dirty = max(s.level - back, 0), true
      local us = floor(ends / p.drain)
      return true, now + us, ends - us * p.drain, max(m3 - back, 0)
    end

    function kind.charge_debt(p, s, units)
      s.level = max(min(s.level + units * p.cell, p.full), s.level)
    end

    return kind
  end

  -- Ticked refill and fixed window. A level in units, as of the tick of its time.
  makers[KIND_STEPPED] = function()
    local kind = {}

    local function tick_at(p, t) return floor((t + p.phase) / p.tick_us) end

    local function level_at(p, s, t)
      return max(min(s.level - (tick_at(p, t) - tick_at(p, s.at)) * p.amount, p.full), 0)
    end

    function kind.advance(p, s)
      local level = level_at(p, s, now)
      s.tick = tick_at(p, now)
      s.repaired = s.level - (s.tick - tick_at(p, s.at)) * p.amount > p.full
      s.level, s.before, s.at = level, level, now
    end

    function kind.used(p, s, t) return level_at(p, s, t) * MILLIONTHS end

    function kind.convert(p, t, millionths)
      local level = min(ceil(millionths / MILLIONTHS), p.full)
      return { at = t, tick = tick_at(p, t), level = level, before = level }
    end

    local function empty_us(p, s, level)
      if level <= 0 then return 0 end
      return (tick_at(p, s.at) + ceil(level / p.amount)) * p.tick_us - p.phase - s.at
    end

    function kind.idle_at(p, s) return s.at + empty_us(p, s, s.level) end

    function kind.head(p, s) return format('%d', s.level) end

    function kind.read(p, head, at)
      local level = tonumber(head)
      return level and { at = at, level = level }
    end

    kind.load = load_text

    function kind.fits(p, s, cost, mode)
      if cost > p.cap then return nil end
      local level = s.level + cost
      local in_window = s.level % p.amount
      if p.cap == p.amount and in_window + cost > p.amount then
        level = s.level - in_window + p.amount + cost
      end
      if empty_us(p, s, level - p.cap) <= (mode == MODE_RESERVE and p.wait_us or 0) then return level end
    end

    function kind.take(p, s, cost, mode, count)
      if mode ~= MODE_RESERVE then
        local fit = min(floor((p.cap - s.level) / cost), count)
        if fit <= 0 then return 0 end
        s.level = s.level + fit * cost
        charged(s, fit * cost)
        return fit
      end
      for taken = 0, count - 1 do
        local level = kind.fits(p, s, cost, mode)
        if not level then return taken end
        s.level = level
        charged(s, cost)
      end
      return count
    end

    function kind.apply(s, level, _, units)
      s.level = level
      charged(s, units)
    end

    function kind.save(p, s, name) return save_text(p, s, name, s.level == 0) end

    function kind.reply_found(p, s) reply(s.before) end

    function kind.refund(p, s, cost, start, m1, m2, m3, m4, units)
      local is_last = (m1 - s.tick) * p.amount + m2 == s.level
      local back = min(units, cost)
      if now < start then
        if not is_last then return false end
        if units >= cost then
          -- With what a window's call skipped to start in the next one.
          back = m3
        elseif now + empty_us(p, s, s.level - back - p.cap) < start then
          return false
        end
      else
        if s.level > p.cap then return false end
        local come = (s.tick - floor((start + p.phase) / p.tick_us)) * p.amount
        back = min(back, cost - come, (m1 - s.tick) * p.amount + m2)
        if back <= 0 then return false end
      end
      s.level, s.dirty = max(s.level - back, 0), true
      return true, s.tick, max((m1 - s.tick) * p.amount + m2 - back, 0), max(m3 - back, 0)
    end

    function kind.charge_debt(p, s, units)
      s.level = max(min(s.level + units, p.full), s.level)
    end

    return kind
  end

  -- Warm-up. The last start in ticks relative to its time, and permits in store.
  makers[KIND_WARM_UP] = function()
    local kind = {}

    local function base_at(p, s, t) return min(s.base - (t - s.at) * p.drain, p.furthest) end

    function kind.advance(p, s)
      local base = base_at(p, s, now)
      s.repaired = base < s.base - (now - s.at) * p.drain
      s.base, s.at = base, now
      s.before = { s.used, s.base, s.stored }
    end

    function kind.used(p, s, t)
      if s.used == 0 then return 0 end
      local first = base_at(p, s, t) + price(p.cold, s.stored, p.cell)
      return first > 0 and times_over(first, MILLIONTHS, p.cell) or 0
    end

    function kind.convert(p, t, millionths)
      local s = { at = t, base = 0, stored = p.cold, used = 0 }
      if millionths > 0 then
        local more = max(millionths - MILLIONTHS, 0)
        s.used, s.base = 1, p.furthest
        if more < (floor(p.furthest / p.cell) + 1) * MILLIONTHS then
          s.base = min(times_over(more, p.cell, MILLIONTHS), p.furthest)
        end
      end
      s.before = { s.used, s.base, s.stored }
      return s
    end

    function kind.idle_at(p, s)
      if s.used == 0 then return s.at end
      local again = s.base + price(p.cold, s.stored, p.cell) + p.cold - s.stored
      return s.at + ceil(max(again, 0) / p.drain)
    end

    function kind.head(p, s)
      -- One that was not used yet: cold, and free for as long as it takes.
      if s.used == 0 then return format('%d:%d', -price(p.cold, p.cold, p.cell), p.cold) end
      return format('%d:%d', s.base, s.stored)
    end

    function kind.read(p, head, at)
      local base, stored = match(head, '^(%-?%d+):(%d+)$')
      return base and { at = at, base = tonumber(base), stored = tonumber(stored), used = 1 }
    end

    kind.load = load_text

    -- Permits in store now, and the first start, from now.
    local function rest(p, s)
      if s.used == 0 then return p.cold, 0 end
      local paid = s.base + price(p.cold, s.stored, p.cell)
      if paid > 0 then return s.stored, paid end
      return min(s.stored - paid, p.cold), 0
    end

    function kind.fits(p, s, cost, mode)
      local longest = mode == MODE_RESERVE and p.wait or 0
      if (cost - 1) * p.cell > longest then return nil end
      local stored, first = rest(p, s)
      local spent = cost * p.cell
      local start = first + price(p.cold, stored, spent) - price(p.cold, stored, p.cell)
      if start <= longest then return start, max(stored - spent, 0) end
    end

    function kind.apply(s, start, stored, units)
      s.base, s.stored, s.used = start, stored, 1
      charged(s, units)
    end

    function kind.save(p, s, name) return save_text(p, s, name, s.used == 0) end

    function kind.reply_found(p, s)
      reply(s.before[1]); reply(s.before[2]); reply(s.before[3])
    end

    -- Only the last start: then the state is as if only the units that stay had been taken.
    function kind.refund(p, s, cost, start, m1, m2, m3, m4, units)
      if s.used == 0 or (m1 - now) * p.drain + m2 ~= s.base then return false end
      local kept = max(cost - units, 0) * p.cell
      local span = price(p.cold, m4, kept)
      s.base, s.stored, s.dirty = s.base - m3 + span, max(m4 - kept, 0), true
      local us = floor(s.base / p.drain)
      return true, now + us, s.base - us * p.drain, span
    end

    function kind.charge_debt(p, s, units)
      local stored = rest(p, s)
      local base = s.used == 1 and max(s.base, 0) or 0
      local owed = min(base + units * p.cell, p.furthest)
      if s.used == 1 then owed = max(owed, s.base) end
      s.base, s.stored, s.used = owed, stored, 1
    end

    return kind
  end

  -- Sliding window and sliding log. A list: its limit, the total and when it was written,
  -- then slice and units of each slice, oldest first. Of a list that this limit wrote only as
  -- much is read as the checks need; beside another limit's it is a text of a few entries.
  makers[KIND_SLICES] = function()
    local kind = {}

    local function slice_at(p, t) return floor(t / p.slice_us) end

    local function append(s, slice, units)
      s.n = s.n + 1
      s.slices[s.n], s.units[s.n] = slice, units
      if s.read == s.n - 1 then s.read = s.n end
      s.total = s.total + units
    end

    local function add(s, slice, units)
      if s.n > 0 and s.slices[s.n] == slice then
        s.units[s.n], s.total = s.units[s.n] + units, s.total + units
      else
        append(s, slice, units)
      end
    end

    local function empty(t) return { at = t, n = 0, stored = 0, gone = 0, read = 0, total = 0, slices = {}, units = {}, walked = 0 } end

    -- Beside another limit's count it has few entries: units count until the youngest of
    -- their piece would have gone.
    function kind.coarsen(p, s)
      local piece, current = ceil((p.span + 1 + ceil(p.wait_us / p.slice_us)) / 32), slice_at(p, now)
      local slices, units, n = s.slices, s.units, s.n
      s.slices, s.units, s.n, s.total, s.read = {}, {}, 0, 0, 0
      for i = 1, n do
        local last = floor(slices[i] / piece) * piece + piece - 1
        -- What has started must not seem to start later: others would wait for it.
        if slices[i] <= current then last = min(last, current) end
        add(s, last, units[i])
      end
    end

    function kind.advance(p, s)
      local current, first = slice_at(p, now), 1
      while first <= s.n and s.slices[first] + p.span < current do first = first + 1 end
      -- What a clock that was ahead put further on than any wait could.
      local furthest = current + ceil(p.wait_us / p.slice_us)
      local slices, units, n = s.slices, s.units, s.n
      s.slices, s.units, s.n, s.total, s.read, s.at = {}, {}, 0, 0, 0, now
      for i = first, n do add(s, min(slices[i], furthest), units[i]) end
    end

    function kind.used(p, s, t)
      local current, used = slice_at(p, t), 0
      for i = 1, s.n do
        if s.slices[i] + p.span >= current then used = used + s.units[i] end
      end
      return used * MILLIONTHS
    end

    function kind.convert(p, t, millionths)
      local s = empty(t)
      local units = min(ceil(millionths / MILLIONTHS), p.amount)
      if units > 0 then append(s, slice_at(p, t), units) end
      return s
    end

    function kind.idle_at(p, s)
      if s.n == 0 then return s.at end
      return max((s.slices[s.n] + p.span + 1) * p.slice_us, s.at)
    end

    function kind.head(p, s)
      local parts = { format('%d', p.amount) }
      for i = 1, s.n do parts[i + 1] = format('%d:%d', s.slices[i], s.units[i]) end
      return table.concat(parts, ',')
    end

    function kind.read(p, head, at)
      local amount, entries = match(head, '^(%d+)(.*)$')
      if not amount then return nil end
      p.amount = tonumber(amount)
      local s = empty(at)
      for slice, units in string.gmatch(entries, ',(%d+):(%d+)') do append(s, tonumber(slice), tonumber(units)) end
      return s
    end

    function kind.charge_debt(p, s, units)
      local owed = min(units, max(p.amount - s.total, 0))
      if owed > 0 then
        local slice = slice_at(p, now)
        if s.n > 0 then slice = max(slice, s.slices[s.n]) end
        add(s, slice, owed)
      end
    end

    -- Reads entries until the first `n` are here.
    local function read_first(s, n)
      while s.read < n and s.read < s.stored do
        local from = 2 + 2 * (s.gone + s.read)
        local list = call('LRANGE', s.key, from, from + 63)
        for i = 1, #list, 2 do
          s.read = s.read + 1
          if s.read < s.stored or not s.slices[s.read] then
            s.slices[s.read], s.units[s.read] = tonumber(list[i]), tonumber(list[i + 1])
          end
        end
        if #list == 0 then s.read = s.stored end
      end
    end

    -- The list that this limit wrote: what no longer counts is passed over.
    local function load_list(p, k, name)
      local s = empty(now)
      s.key, s.total, s.n = name, k.total, k.n
      local current, last = slice_at(p, now), k.last
      -- Nothing counts any more: nothing else has to be read.
      if not k.counts then return empty(now) end
      local chunk, gone, is_past = 63, 0, true
      while is_past do
        local list = call('LRANGE', name, 2 + 2 * gone, 2 + 2 * gone + chunk)
        for i = 1, #list, 2 do
          local slice, units = tonumber(list[i]), tonumber(list[i + 1])
          if is_past and slice + p.span < current then
            gone, s.total = gone + 1, s.total - units
          else
            is_past = false
            s.read = s.read + 1
            s.slices[s.read], s.units[s.read] = slice, units
          end
        end
        if #list == 0 then break end
        chunk = 1999
      end
      s.gone, s.n = gone, s.n - gone
      s.stored = s.n
      s.slices[s.n], s.units[s.n] = tonumber(last[1]), tonumber(last[2])
      -- What a clock that was ahead put further on than any wait could.
      local furthest = current + ceil(p.wait_us / p.slice_us)
      if s.slices[s.n] > furthest then
        read_first(s, s.n)
        local ahead = 0
        while s.n > 0 and s.slices[s.n] > furthest do
          ahead = ahead + s.units[s.n]
          s.slices[s.n], s.units[s.n], s.n = nil, nil, s.n - 1
        end
        s.total, s.read, s.stored, s.rebuilt, s.repaired = s.total - ahead, s.n, s.n, true, true
        add(s, furthest, ahead)
        s.stored = s.n
      end
      return s
    end

    -- No other limit counts the key, or has been in force here before this one.
    local function is_alone(p, k)
      return #k.others == 0 and not k.merged and p.is_first
    end

    function kind.load(p, name)
      local k = key_of(name, p.tag)
      if k == false then return nil, OTHER end
      local s
      -- The last entry says whether any counts.
      if k and not k.main.s then
        k.n = (call('LLEN', name) - 2) / 2
        k.last = k.n > 0 and call('LRANGE', name, -2, -1)
        k.counts = k.last and k.last[1] + p.span >= slice_at(p, now)
      end
      if k and not k.counts and is_over(k) then k = nil end
      if not k then
        s = empty(now)
      elseif not k.main.s and (p.since <= k.written or is_alone(p, k)) then
        s = load_list(p, k, name)
        s.is_main = true
      else
        if not k.main.s then read_entries(k, name) end
        s = start(p, k)
        kind.advance(p, s)
        s.rebuilt, s.repaired, s.is_main = true, k.written > now, k.main.s == s
      end
      if s.n == 0 then s.rebuilt = true end
      s.k, s.key = k, name
      s.walked = 0
      if s.rebuilt then s.stored, s.read, s.gone = s.n, s.n, 0 end
      s.n_before, s.total_before, s.last_before = s.n, s.total, s.units[s.n]
      return s
    end

    function kind.fits(p, s, cost, mode)
      if cost > p.amount then return nil end
      local earliest = slice_at(p, now)
      if s.n > 0 then earliest = max(earliest, s.slices[s.n]) end
      local excess, i = s.total + cost - p.amount, 0
      while excess > 0 and i < s.n do
        i = i + 1
        read_first(s, i)
        excess = excess - s.units[i]
        earliest = max(earliest, s.slices[i] + p.span + 1)
      end
      s.walked = max(s.walked, i)
      local wait = max(earliest * p.slice_us - now, 0)
      if wait <= (mode == MODE_RESERVE and p.wait_us or 0) then return earliest end
    end

    function kind.apply(s, slice, _, units)
      add(s, slice, units)
      charged(s, units)
    end

    function kind.save(p, s, name)
      local others, till = '', 0
      if s.k then others, till = others_of(p, s.k, s.charged or 0) end
      if s.n == 0 and others == '' then call('DEL', name) return nil end
      local first, total, list, done = p.tag .. others, format('%d@%d/%d', s.total, now, p.amount), nil, nil
      if s.rebuilt or s.n == 0 then
        read_first(s, s.n)
        -- Whether the server takes writes, before anything is deleted.
        local err = pcall('SETRANGE', name, 0, '')
        if type(err) == 'table' and err.err and not find(err.err, 'WRONGTYPE', 1, true) then return err.err end
        call('DEL', name)
        list, done = { first, total }, 0
      else
        -- The first write says whether the server takes any.
        local err = pcall('LSET', name, 1, total)
        if type(err) == 'table' and err.err then return err.err end
        if s.gone > 0 then
          call('LTRIM', name, 2 + 2 * s.gone, -1)
          call('LPUSH', name, total, first)
        elseif s.k.is_shared or others ~= '' then
          call('LSET', name, 0, first)
        end
        call('LSET', name, -1, s.units[s.stored])
        list, done = {}, s.stored
      end
      for i = done + 1, s.n do
        list[#list + 1], list[#list + 2] = s.slices[i], s.units[i]
        if #list >= 1000 then
          local err = pcall('RPUSH', name, unpack(list))
          if type(err) == 'table' and err.err then return err.err end
          list = {}
        end
      end
      if #list > 0 then
        local err = pcall('RPUSH', name, unpack(list))
        if type(err) == 'table' and err.err then return err.err end
      end
      local last = s.slices[s.n]
      call('PEXPIRE', name, keep(max(last and (last + p.span + 1) * p.slice_us or 0, till) - now))
    end

    -- The total and the entries that the checks met; the rest as one, in the last.
    function kind.reply_found(p, s)
      local n = min(s.walked, s.n_before)
      local rest = s.total_before
      reply(s.total_before)
      local entries = n
      if n < s.n_before then entries = n + 1 end
      reply(n)
      reply(entries)
      for i = 1, entries do
        local units = s.units[i]
        if i == entries and n < s.n_before then
          reply(s.slices[s.n_before])
          units = rest
        else
          reply(s.slices[i])
          if i == s.n_before then units = s.last_before end
        end
        reply(units)
        rest = rest - units
      end
    end

    -- Reads entry `i`, and some before it, unless it is here.
    local function read_entry(s, i)
      if i < 1 or s.slices[i] then return end
      local first = max(i - 31, 1)
      local from = 2 + 2 * (s.gone + first - 1)
      local list = call('LRANGE', s.key, from, from + 2 * (i - first) + 1)
      for at = 1, #list, 2 do
        local entry = first + (at - 1) / 2
        if not s.slices[entry] then s.slices[entry], s.units[entry] = tonumber(list[at]), tonumber(list[at + 1]) end
      end
    end

    function kind.refund(p, s, cost, start, m1, m2, m3, m4, units)
      -- From the end: what is refunded is mostly new.
      local low = s.n
      read_entry(s, low)
      while low > 0 and s.slices[low] > m1 do
        low = low - 1
        read_entry(s, low)
      end
      if low == 0 or s.slices[low] ~= m1 then return true end
      local back = min(units, cost, s.units[low])
      s.units[low], s.total = s.units[low] - back, s.total - back
      -- An entry without units is harmless, but for the last: starts do not go back behind it.
      if low < s.n and not s.rebuilt then pcall('LSET', s.key, 3 + 2 * (s.gone + low - 1), s.units[low]) end
      while s.n > 0 and s.units[s.n] == 0 do
        if not s.rebuilt then call('RPOP', s.key, 2) end
        s.slices[s.n], s.units[s.n] = nil, nil
        s.n = s.n - 1
        s.stored, s.read = s.n, min(s.read, s.n)
        read_entry(s, s.n)
      end
      -- Those without units must not pile up between those that stay.
      if s.n > 2 * s.total + 64 then
        read_first(s, s.n)
        local slices, units, n = s.slices, s.units, s.n
        s.slices, s.units, s.n, s.total, s.read = {}, {}, 0, 0, 0
        for i = 1, n do if units[i] > 0 then append(s, slices[i], units[i]) end end
        s.stored, s.gone, s.rebuilt = s.n, 0, true
      end
      s.dirty = true
      return true
    end

    return kind
  end

  -- Slots. Three sorted sets: who holds (until when), who waits (in which order), and
  -- until when they are taken to be alive. A member is `owner.number~lease:units`, with the
  -- lease of its owner in milliseconds. Below zero, out of the way of times, `#` holds the
  -- sum, and `@` when the set was last written.
  makers[KIND_SLOTS] = function()
    local kind = {}

    local function units_of(member) return tonumber(match(member, ':(%d+)$')) or 0 end
    local function lease_end(p, member)
      local lease_ms = tonumber(match(member, '~(%d+):'))
      return now + (lease_ms and lease_ms * 1000 or p.lease_us)
    end
    kind.units_of, kind.lease_end = units_of, lease_end

    -- After the clock stepped back, no lease lasts longer than it would from now on.
    local function shorten(p, key)
      local ends = call('ZRANGEBYSCORE', key, format('(%d', now), '+inf', 'WITHSCORES')
      for i = 1, #ends, 2 do
        local latest = lease_end(p, ends[i])
        if tonumber(ends[i + 1]) > latest then pcall('ZADD', key, latest, ends[i]) end
      end
    end

    -- What a call does of each, so that a crowd that went away holds up nobody: the rest is for
    -- the next ones. Until then it counts as held or waiting.
    local MOST = 100

    local function grant_waiters(p, s)
      -- Not to one that crashed.
      if s.has_crashed then return end
      for _ = 1, min(s.waiting, MOST) do
        local first = call('ZRANGE', s.queue, 0, 0)[1]
        local units = units_of(first)
        if s.held + units > p.amount then return end
        if type(pcall('ZADD', s.key, lease_end(p, first), first)) == 'table' then return end
        call('ZREM', s.queue, first)
        call('ZREM', s.alive, first)
        s.held, s.waiting, s.dirty = s.held + units, s.waiting - 1, true
      end
    end
    kind.grant_waiters = grant_waiters

    function kind.load(p, key, queue, alive)
      local s = { key = key, queue = queue, alive = alive }
      local sum = pcall('ZSCORE', key, '#')
      if type(sum) == 'table' then return nil, OTHER end
      s.held = sum and -sum or 0
      if s.held > 0 then
        local written = call('ZSCORE', key, '@')
        if written and now < -written then
          shorten(p, key)
          s.dirty = true
        end
        for _, member in ipairs(call('ZRANGEBYSCORE', key, '(0', now, 'LIMIT', 0, MOST)) do
          call('ZREM', key, member)
          s.held, s.dirty = max(s.held - units_of(member), 0), true
        end
      end
      s.waiting = call('ZCARD', queue)
      if s.waiting > 0 then
        local latest = now + p.waiter_us
        for _, member in ipairs(call('ZRANGEBYSCORE', alive, format('(%d', latest), '+inf', 'LIMIT', 0, MOST)) do
          pcall('ZADD', alive, latest, member)
        end
        local crashed = call('ZRANGEBYSCORE', alive, '-inf', now, 'LIMIT', 0, MOST)
        s.has_crashed = #crashed == MOST
        for _, member in ipairs(crashed) do
          call('ZREM', queue, member)
          call('ZREM', alive, member)
          s.waiting = s.waiting - 1
        end
        grant_waiters(p, s)
      end
      s.repaired, s.dirty = s.dirty, nil
      s.held_before, s.waiting_before = s.held, s.waiting
      return s
    end

    function kind.fits(p, s, cost, mode)
      if (mode == MODE_RESERVE or mode == MODE_HOLD) and s.waiting == 0 and s.held + cost <= p.amount then return true end
    end

    function kind.apply(s, _, _, units, member)
      s.held, s.dirty = s.held + units, true
      s.taken = s.taken or {}
      s.taken[#s.taken + 1] = member
    end

    function kind.save(p, s, key)
      if s.held == 0 then call('DEL', key)
      else
        for _, member in ipairs(s.taken or {}) do
          local err = pcall('ZADD', key, lease_end(p, member), member)
          if type(err) == 'table' and err.err then return err.err end
        end
        local err = pcall('ZADD', key, -s.held, '#', -now, '@')
        if type(err) == 'table' and err.err then return err.err end
        -- As long as the longest lease, which may be another node's.
        local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
        call('PEXPIRE', key, keep(max(tonumber(last) - now, p.lease_us)))
      end
      if s.waiting > 0 then
        call('PEXPIRE', s.queue, keep(p.waiter_us))
        call('PEXPIRE', s.alive, keep(p.waiter_us))
      end
    end

    function kind.reply_found(p, s) reply(s.held_before); reply(s.waiting_before) end

    return kind
  end

  local ops = {}

  -- How many were taken of each run that stands in `list`: mode, count and cost.
  local function decide_runs(p, s, list, from, runs)
    local kind, takens = kinds[p.number], {}
    for r = 1, runs do
      local mode, count, cost = list[from], list[from + 1], list[from + 2]
      from = from + 3
      local taken = 0
      if cost == 0 then
        taken = count
      elseif mode == MODE_PEEK then
        kind.fits(p, s, cost, MODE_CHECK)
      elseif kind.take then
        taken = kind.take(p, s, cost, mode, count)
      else
        while taken < count do
          local x, y = kind.fits(p, s, cost, mode)
          if not x then break end
          kind.apply(s, x, y, cost)
          taken = taken + 1
        end
      end
      takens[r] = taken
    end
    return takens
  end

  -- One key of a rate. KEYS: 1. Takes: limit, number of runs; mode, count and cost of each run of
  -- equal checks. Returns: 0, the state found, and how many were taken of each run.
  ops[OP_RUNS] = function()
    local p, runs = plans[a[at]], a[at + 1]
    local from = at + 2
    at = from + 3 * runs
    local s, err = load(p)
    if err then return reply(err) end
    local takens = decide_runs(p, s, a, from, runs)
    err = save(p, s, names[key])
    if err then return reply(err) end
    reply(0)
    kinds[p.number].reply_found(p, s)
    for r = 1, runs do reply(takens[r]) end
  end

  -- One unit of a bucket: what OP_UNIT returns.
  function ops.unit(p)
    local s, err = load(p)
    if err then return err end
    local taken = decide_runs(p, s, { MODE_CHECK, 1, 1 }, 1, 1)[1]
    return save(p, s, names[key]) or (taken == 1 and s.before or -1 - s.before)
  end

  -- Writes, and replies 0 and `result` if there is one.
  local function save_and_reply(p, s, name, result)
    local err = save(p, s, name)
    if err then return reply(err) end
    reply(0)
    if result then reply(result) end
  end

  -- Several keys. KEYS: those of each key. Takes: number of keys, the limit of each, number of
  -- requests; of each request its mode, a cost for each key, and a member for each key of slots.
  -- Returns: 0, the state found of each key, and 1 or 0 for each request: all of it was charged,
  -- or nothing.
  ops[OP_SEVERAL] = function()
    local n, ps, ss, first_names, bad = a[at], {}, {}, {}, nil
    for i = 1, n do
      local err
      ps[i], first_names[i] = plans[a[at + i]], names[key + 1]
      ss[i], err = load(ps[i])
      bad = bad or err
    end
    at = at + n + 1
    local requests, takens = a[at], {}
    at = at + 1
    for r = 1, requests do
      local mode, costs = a[at], at
      at = at + n + 1
      local xs, ys, members, fit = {}, {}, {}, not bad
      for i = 1, n do
        local p, cost = ps[i], a[costs + i]
        if p.number == KIND_SLOTS then members[i] = a[at]; at = at + 1 end
        if not bad and cost > 0 then
          xs[i], ys[i] = kinds[p.number].fits(p, ss[i], cost, mode)
          if xs[i] == nil then fit = false end
        end
      end
      takens[r] = fit and 1 or 0
      for i = 1, n do
        local cost = a[costs + i]
        if fit and mode ~= MODE_PEEK and cost > 0 then
          kinds[ps[i].number].apply(ss[i], xs[i], ys[i], cost, members[i])
        end
      end
    end
    -- What was repaired is written also if something else is wrong: the sum of slots must follow
    -- what was taken out of them.
    for i = 1, n do
      if ss[i] then bad = save(ps[i], ss[i], first_names[i]) or bad end
    end
    if bad then return reply(bad) end
    reply(0)
    for i = 1, n do kinds[ps[i].number].reply_found(ps[i], ss[i]) end
    for r = 1, requests do reply(takens[r]) end
  end

  -- Refund charges of one key of a rate. KEYS: 1. Takes: limit, number of charges, 1 if the first
  -- is the caller's own; of each charge the units that it holds, its start, its mark (four
  -- numbers) and the units that come back. The charges that are not the caller's were cancelled
  -- earlier, when others had reserved behind them.
  -- Returns: 0, the first one's new mark (three numbers), and 1 or 0 for each: it came back.
  ops[OP_REFUND] = function()
    local p, n, has_own, first = plans[a[at]], a[at + 1], a[at + 2] == 1, at + 3
    at = first + 7 * n
    local s, err = load(p)
    if err then return reply(err) end
    local m1, m2, m3 = a[first + 2], a[first + 3], a[first + 4]
    local given = {}
    -- Where another limit has written since, its count stands on what is to come back.
    for i = 1, s.is_main and n or 0 do
      local x = first + 7 * (i - 1)
      local is_given, n1, n2, n3 = kinds[p.number].refund(
        p, s, a[x], a[x + 1], a[x + 2], a[x + 3], a[x + 4], a[x + 5], a[x + 6])
      given[i] = is_given and 1 or 0
      if i == 1 and n1 then m1, m2, m3 = n1, n2, n3 end
      -- What is in its way is in the way of those before it.
      if i == 1 and has_own and not is_given then
        for j = 2, n do given[j] = 0 end
        break
      end
    end
    err = save(p, s, names[key])
    if err then return reply(err) end
    reply(0)
    reply(m1); reply(m2); reply(m3)
    for i = 1, n do reply(given[i] or 1) end
  end

  -- Charge a debt: units used beyond a grant. KEYS: 1. Takes: limit, units. Returns: 0.
  ops[OP_CHARGE_DEBT] = function()
    local p, units = plans[a[at]], a[at + 1]
    at = at + 2
    local s, err = load(p)
    if err then return reply(err) end
    kinds[p.number].charge_debt(p, s, units)
    charged(s, units)
    save_and_reply(p, s, names[key])
  end

  -- Forget a key of a rate. KEYS: 1. Takes: nothing. Returns: 0.
  ops[OP_RESET] = function()
    key = key + 1
    call('DEL', names[key])
    reply(0)
  end

  -- Release slots. KEYS: 3. Takes: limit, member, the member that holds what is left ('' if nothing
  -- is). Returns: 0, and 1 if the slots were held.
  ops[OP_RELEASE] = function()
    local p, member, left = plans[a[at]], a[at + 1], a[at + 2]
    at = at + 3
    local s, err = load(p)
    if err then return reply(err) end
    local till = call('ZSCORE', s.key, member)
    if till then
      if left ~= '' then
        err = pcall('ZADD', s.key, till, left)
        if type(err) == 'table' then return reply(err.err) end
        s.held = s.held + kinds[KIND_SLOTS].units_of(left)
      end
      call('ZREM', s.key, member)
      s.held, s.dirty = s.held - kinds[KIND_SLOTS].units_of(member), true
      kinds[p.number].grant_waiters(p, s)
    end
    save_and_reply(p, s, s.key, till and 1 or 0)
  end

  -- Renew slots. KEYS: 3. Takes: limit, number of members, the members. Returns: 0, and of each
  -- RENEWED_LOST, RENEWED_HELD, or RENEWED_NOT if it is held but the server takes no writes.
  ops[OP_RENEW] = function()
    local p, n = plans[a[at]], a[at + 1]
    local s, err = load(p)
    if err then
      at = at + 2 + n
      return reply(err)
    end
    reply(0)
    for i = 1, n do
      local held = call('ZSCORE', s.key, a[at + 1 + i])
      local renewed = held and pcall('ZADD', s.key, kinds[KIND_SLOTS].lease_end(p, a[at + 1 + i]), a[at + 1 + i])
      s.dirty = s.dirty or held
      reply(not held and RENEWED_LOST or type(renewed) == 'table' and RENEWED_NOT or RENEWED_HELD)
    end
    at = at + 2 + n
    save(p, s, s.key)
  end

  -- Queue for slots, or see whether they are held by now. KEYS: 3. Takes: limit, member, 1 at the first time.
  -- Returns: 0, and a number QUEUED_*.
  ops[OP_QUEUE] = function()
    local p, member, is_new = plans[a[at]], a[at + 1], a[at + 2]
    at = at + 3
    local s, err = load(p)
    if err then return reply(err) end
    local units, state = kinds[KIND_SLOTS].units_of(member), QUEUED_WAITING
    if call('ZSCORE', s.key, member) then
      state = QUEUED_HELD
      pcall('ZADD', s.key, kinds[KIND_SLOTS].lease_end(p, member), member)
    elseif call('ZSCORE', s.queue, member) then
      pcall('ZADD', s.alive, now + p.waiter_us, member)
    elseif is_new == 0 then
      state = QUEUED_GONE
    elseif s.waiting == 0 and s.held + units <= p.amount then
      state = QUEUED_HELD
      kinds[p.number].apply(s, nil, nil, units, member)
    elseif s.waiting >= p.queue or units > p.amount then
      state = QUEUED_FULL
    else
      local last = call('ZRANGE', s.queue, -1, -1, 'WITHSCORES')[2]
      err = pcall('ZADD', s.queue, (tonumber(last) or 0) + 1, member)
      if type(err) == 'table' then return reply(err.err) end
      call('ZADD', s.alive, now + p.waiter_us, member)
      s.waiting = s.waiting + 1
    end
    s.dirty = true
    save_and_reply(p, s, s.key, state)
  end

  -- Leave the queue; slots that were granted meanwhile go to the next. KEYS: 3. Takes: limit,
  -- member. Returns: 0.
  ops[OP_LEAVE] = function()
    local p, member = plans[a[at]], a[at + 1]
    at = at + 2
    local s, err = load(p)
    if err then return reply(err) end
    if call('ZREM', s.queue, member) == 1 then
      call('ZREM', s.alive, member)
      s.waiting = s.waiting - 1
    elseif call('ZREM', s.key, member) == 1 then
      s.held = s.held - kinds[KIND_SLOTS].units_of(member)
    end
    s.dirty = true
    kinds[p.number].grant_waiters(p, s)
    save_and_reply(p, s, s.key)
  end

  -- Heartbeat of a node. KEYS: 1. Takes: its name, and the microseconds for which it counts as
  -- alive. Returns: 0, how many are alive, and for how long they have been counted here without a
  -- gap. Below zero, `#` holds since when, and `@` the time of the last heartbeat.
  ops[OP_HEARTBEAT] = function()
    key = key + 1
    local name, node, life = names[key], a[at], a[at + 1]
    local latest = now + life
    at = at + 2
    call('ZREMRANGEBYSCORE', name, '(0', now)
    -- The clock stepped back: nobody is believed for longer than from now on.
    for _, other in ipairs(call('ZRANGEBYSCORE', name, format('(%d', latest), '+inf')) do
      pcall('ZADD', name, latest, other)
    end
    local since, last = call('ZSCORE', name, '#'), call('ZSCORE', name, '@')
    since = since and last and min(-since, now) or now
    -- A server that was silent, or whose clock stepped forward, has to hear all of them anew.
    if last and now + last > life / 2 then since = now end
    local err = pcall('ZADD', name, latest, node, -since, '#', -now, '@')
    if type(err) == 'table' then return reply(err.err) end
    call('PEXPIRE', name, keep(life))
    reply(0)
    reply(call('ZCARD', name) - 2)
    reply(now - since)
  end

  return ops
end

-- OP_RUNS of a bucket; false if the key is not for `level_of`.
local function bucket_runs(p)
  local name = names[key + 1]
  local level = level_of(p, pcall('GET', name))
  if not level then return false end
  key = key + 1
  local runs, status, before = a[at + 1], outs + 1, level
  at = at + 2
  out[status], out[status + 1], outs = 0, level, outs + 2
  for _ = 1, runs do
    local mode, fit, added = a[at], a[at + 1], a[at + 2] * p.cell
    at = at + 3
    if mode == MODE_PEEK then
      fit = 0
    elseif added > 0 then
      fit = bucket_fit(p, level, added, mode, fit)
      level = level + fit * added
    end
    outs = outs + 1
    out[outs] = fit
  end
  local err = level > before and write_bucket(p, name, level)
  if err then
    for i = status + 1, outs do out[i] = nil end
    out[status], outs = err, status
  end
  return true
end

local is_each_once, operations = a[at] == 1, a[at + 1]
at = at + 2

-- Nothing here writes to a key that is yet to be read: then all are read at once. A key that
-- holds something else than a text is read as none, as a new one is: writing it tells them
-- apart, so that new keys, of which there are many, are not read twice.
local texts = is_each_once and pcall('MGET', unpack(names)) or {}

local ops
for _ = 1, operations do
  local op = a[at]
  at = at + 1
  if op > OP_UNIT then
    -- One unit of the bucket of limit `op - OP_UNIT`, by far the most. KEYS: 1. Takes: nothing.
    -- Returns: the level found, or -1 - level if the unit does not fit.
    local p, name, text = plans[op - OP_UNIT], names[key + 1], texts[key + 1]
    local is_new, level, answer = text == false, 0, nil
    if not is_new then level = level_of(p, text or pcall('GET', name)) end
    if level then
      if level + p.cell <= p.burst then
        answer = write_bucket(p, name, level + p.cell, is_new) or level
      else
        answer = -1 - level
      end
    end
    if level and not (is_new and answer ~= 0 and find(answer, 'WRONGTYPE', 1, true)) then
      key = key + 1
    else
      ops = ops or the_rest()
      answer = ops.unit(p)
    end
    outs = outs + 1
    out[outs] = answer
  else
    local p = op == OP_RUNS and plans[a[at]]
    if not (p and p.number == KIND_BUCKET and bucket_runs(p)) then
      ops = ops or the_rest()
      ops[op]()
    end
  end
end
return out
