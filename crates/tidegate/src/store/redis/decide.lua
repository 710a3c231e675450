-- The transitions of every kind of limit, as in src/algorithm, on the server's clock.
--
-- One call carries any number of groups, each about one set of keys, decided in order
-- at one instant. KEYS: the keys of all groups, in order (three for a key of places).
-- ARGV[1]: all numbers, packed flat: the time (-1: the server's), the plans, the groups.
-- The answer is flat as well: the time, then what each group found and took. What a
-- caller is told (waits, retry, what is left) is computed from that by the client.
--
-- Times are whole microseconds; no number reaches 2^53, so nothing is rounded.

local a, at = cmsgpack.unpack(ARGV[1]), 3
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local find, sub, match, format = string.find, string.sub, string.match, string.format
local call, pcall = redis.call, redis.pcall
local OTHER = 'TIDEGATE the key holds something else'

local now, keep_ms = a[1], 3600000
if now < 0 then
  local time = call('TIME')
  now, keep_ms = tonumber(time[1]) * 1000000 + tonumber(time[2]), 0
end

local out, outs = { now }, 1
local function tell(value) outs = outs + 1; out[outs] = value end

-- Milliseconds that a state is kept which is as good as none after `us`.
local function keep(us) return format('%d', max(ceil(us / 1000) + 1, keep_ms)) end

local plans, key = {}, 0
for n = 1, a[2] do
  local number, b, c, d, e, f = a[at], a[at + 1], a[at + 2], a[at + 3], a[at + 4], a[at + 5]
  local p = { number = number, tag = a[at + 6] }
  if number == 1 then
    p.cell, p.drain, p.burst, p.full, p.strict, p.full_us = b, c, d, e, f, floor(e / c)
  elseif number == 2 then
    p.amount, p.tick_us, p.cap, p.wait_us, p.full = b, c, d, e, d + b * ceil(e / c)
  elseif number == 3 then
    p.cell, p.drain, p.cold, p.wait, p.furthest = b, c, d * c, e * c, (d + e) * c
  elseif number == 4 then
    p.amount, p.slice_us, p.span, p.wait_us = b, c, d, e
  else
    p.amount, p.queue, p.lease_us, p.waiter_us = b, c, d, e
  end
  -- From when on this node has had this limit.
  p.since = now - a[at + 7]
  plans[n] = p
  at = at + 8
end

-- Everything but the shortest way, made only in a call that needs it.
local function the_rest()
  -- x * y / c, rounded up. x, y and c are below 2^52, and so is the result.
  local function times_over(x, y, c)
    local product = x * y
    if product < 4503599627370496 then return ceil(product / c) end
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

  -- The text of a state is its numbers, and the numbers (in base 36) of the limit that
  -- wrote it, so that another limit can convert it:
  --   us[:fraction] b cell/full[/drain]          when a bucket will be empty
  --   tick:level t amount/tick/full              units at that tick
  --   us:fraction:stored w cell/drain/warmup/wait   the last start, permits in store
  -- and a list of slices starts with `l slice/span/wait` and its total. Behind it may stand
  -- `+units@created~until`: what another limit had counted, this one cannot hold, and
  -- would have been used until then. It counts for those who had their limit already when
  -- it was put there: while nodes disagree, the looser limit must not find it forgotten.
  local function numbers(text)
    local x, y, z = match(text, '^(%-?%d+):?(%d*):?(%d*)$')
    return tonumber(x), tonumber(y) or 0, tonumber(z)
  end

  local function base36(text) return text and text ~= '' and tonumber(text, 36) or nil end

  -- Takes what a limit could not hold off its text: the rest, and that, if it still counts.
  local function split(text)
    if not find(text, '+', 1, true) then return text end
    local plain, units, created, till = match(text, '^(.*)%+(%d+)@(%-?%d+)~(%-?%d+)$')
    if not plain then return nil end
    local excess = { units = tonumber(units), created = tonumber(created), till = tonumber(till) }
    return plain, excess.till > now and excess or nil
  end

  -- Units in use of a state that another limit wrote, rounded up, and when they would all
  -- be gone; nil if it is none.
  local function used_of_text(text)
    local head, letter, w, x, y, z = match(text, '^([%d:%-]+)(%a)(%w+)/(%w+)/?(%w*)/?(%w*)$')
    if not head then return nil end
    w, x, y, z = base36(w), base36(x), base36(y), base36(z)
    local n, fraction, stored = numbers(head)
    if not n then return nil end
    if letter == 'b' then
      local drain = y or 1
      local level = min((n - now) * drain + fraction, (x + 1) * w)
      return min(max(ceil(level / w), 0), x), now + ceil(level / drain)
    elseif letter == 't' and y then
      local tick = floor(now / x)
      local level = min(fraction + (n - tick) * w, y)
      return max(level, 0), (tick + ceil(level / w)) * x
    elseif letter == 'w' and stored and z then
      local cold = y * x
      local base = min((n - now) * x + fraction, (y + z) * x)
      local first = base + price(cold, stored, w)
      return max(ceil(first / w), 0), now + ceil(max(first, 0) / x)
    end
  end

  local function used_of_list(list, tag)
    local slice_us, span, wait = match(tag or '', '^l(%w+)/(%w+)/(%w+)$')
    if not slice_us then return nil end
    slice_us, span, wait = base36(slice_us), base36(span), base36(wait)
    local current, used, last = floor(now / slice_us), 0, 0
    for i = 3, #list, 2 do
      local slice = tonumber(list[i])
      if slice >= current - span then used, last = used + list[i + 1], slice end
    end
    last = min(last, current + ceil(wait / slice_us))
    return used, (last + span + 1) * slice_us
  end

  -- What another limit has counted, and what of it this one cannot hold.
  local function carry(p, used, till, excess)
    if excess and excess.created > p.since then used, till = used + excess.units, max(till, excess.till) end
    return used, till
  end

  local function excess_of(used, held, till)
    if used > held and till > now then return { units = used - held, created = now, till = till } end
  end

  -- The numbers of a key under this limit, or the units that another one has counted on
  -- it and until when, or what is wrong; and what this limit could not hold.
  local function read(p, key)
    local text = pcall('GET', key)
    if not text then return nil end
    local used, till, plain, excess
    if type(text) == 'table' then
      local list = pcall('LRANGE', key, 0, -1)
      if list.err then return nil, nil, OTHER end
      plain, excess = split(list[1] or '')
      used, till = used_of_list(list, plain)
    else
      plain, excess = split(text)
      if not plain then return nil, nil, OTHER end
      local tag = #plain - #p.tag
      if sub(plain, tag + 1) == p.tag then
        local head = sub(plain, 1, tag)
        if find(head, '^%-?%d[%d:]*$') then return head, nil, nil, excess end
      end
      used, till = used_of_text(plain)
    end
    if not used then return nil, nil, OTHER end
    used, till = carry(p, used, till, excess)
    return nil, used, nil, till
  end

  -- What stands behind a state: its limit, and what that could not hold.
  local function tag_of(p, s)
    if not s.excess then return p.tag end
    return format('%s+%d@%d~%d', p.tag, s.excess.units, s.excess.created, s.excess.till)
  end

  -- How long a state is kept: until it is as good as none, also for another limit.
  local function kept(s, us)
    if s.excess then us = max(us, s.excess.till - now) end
    return keep(us)
  end

  -- Each kind: load, fits, apply, save, found; and for rates give_back and owe.
  local makers = {}

  -- 1: token bucket, leaky bucket, leaky queue. A level in ticks, relative to now.
  makers[1] = function()
    local kind = {}

    function kind.load(p, key)
      local head, used, err, excess = read(p, key)
      if err then return nil, err end
      local level, repaired = 0, used ~= nil
      if used then
        level = min(used * p.cell, p.full)
        excess = excess_of(used, ceil(level / p.cell), excess)
      elseif head then
        local us, fraction = tonumber(head), 0
        if not us then us, fraction = numbers(head) end
        local ahead = us - now
        if ahead >= 0 then
          -- Compared as microseconds first: the ticks of a year need not be exact.
          level = ahead > p.full_us and p.full + 1 or ahead * p.drain + fraction
          -- Further ahead than any grant could have put it: the clock has come back.
          if level > p.full then level, repaired = p.full, true end
        end
      end
      return { level = level, before = level, repaired = repaired, carried = used, excess = excess }
    end

    function kind.take(p, s, cost, mode, count)
      local added = cost * p.cell
      local cap = mode == 1 and p.full or p.burst
      local fit = min(floor((cap - s.level) / added), count)
      if fit <= 0 then return 0 end
      s.level, s.dirty = s.level + fit * added, true
      return fit
    end

    function kind.fits(p, s, cost, mode)
      local level = s.level + cost * p.cell
      if level <= (mode == 1 and p.full or p.burst) then return level end
    end

    function kind.apply(s, level) s.level, s.dirty = level, true end

    function kind.save(p, s, key)
      if s.level == 0 and not s.excess then return call('DEL', key) end
      local us = floor(s.level / p.drain)
      local fraction = s.level - us * p.drain
      local text
      if fraction > 0 then text = format('%d:%d%s', now + us, fraction, tag_of(p, s))
      else text = format('%d%s', now + us, tag_of(p, s)) end
      return pcall('SET', key, text, 'PX', kept(s, us + 1))
    end

    function kind.found(p, s) tell(s.before) end

    -- Each give_back: the units that are charged, when they start, their mark, the units that
    -- come back. Tells whether they did, and the new mark of the last. `m3` is how far the
    -- charge moved the state, `m4` what a warm-up had in store before it.
    function kind.give_back(p, s, cost, start, m1, m2, m3, m4, units)
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
        -- Above the burst somebody waits, who was promised a start on top of this.
        if s.level > p.burst then return false end
        -- What has flowed back by itself since is somebody else's.
        back = min(back, cost * p.cell - (now - start) * p.drain, (m1 - now) * p.drain + m2)
        if back <= 0 then return false end
      end
      local ends = (m1 - now) * p.drain + m2 - back
      s.level, s.dirty = max(s.level - back, 0), true
      local us = floor(ends / p.drain)
      return true, now + us, ends - us * p.drain, max(m3 - back, 0)
    end

    function kind.owe(p, s, units)
      s.level, s.dirty = max(min(s.level + units * p.cell, p.full), s.level), true
    end

    return kind
  end

  -- 2: ticked refill and fixed window. A level in units, relative to the current tick.
  makers[2] = function()
    local kind = {}

    function kind.load(p, key)
      local head, used, err, excess = read(p, key)
      if err then return nil, err end
      local s = { tick = floor(now / p.tick_us), level = 0, excess = not used and excess or nil }
      if used then
        s.level, s.repaired, s.carried = min(used, p.full), true, true
        s.excess = excess_of(used, s.level, excess)
      elseif head then
        local tick, level = numbers(head)
        level = level + (tick - s.tick) * p.amount
        if level > p.full then level, s.repaired = p.full, true end
        s.level = max(level, 0)
      end
      s.before = s.level
      return s
    end

    local function empty_us(p, s, level)
      if level <= 0 then return 0 end
      return (s.tick + ceil(level / p.amount)) * p.tick_us - now
    end

    function kind.fits(p, s, cost, mode)
      if cost > p.cap then return nil end
      local level = s.level + cost
      local in_window = s.level % p.amount
      if p.cap == p.amount and in_window + cost > p.amount then
        level = s.level - in_window + p.amount + cost
      end
      if empty_us(p, s, level - p.cap) <= (mode == 1 and p.wait_us or 0) then return level end
    end

    function kind.take(p, s, cost, mode, count)
      if mode ~= 1 then
        local fit = min(floor((p.cap - s.level) / cost), count)
        if fit <= 0 then return 0 end
        s.level, s.dirty = s.level + fit * cost, true
        return fit
      end
      for taken = 0, count - 1 do
        local level = kind.fits(p, s, cost, mode)
        if not level then return taken end
        s.level, s.dirty = level, true
      end
      return count
    end

    function kind.apply(s, level) s.level, s.dirty = level, true end

    function kind.save(p, s, key)
      if s.level == 0 and not s.excess then return call('DEL', key) end
      local text = format('%d:%d%s', s.tick, s.level, tag_of(p, s))
      return pcall('SET', key, text, 'PX', kept(s, empty_us(p, s, s.level)))
    end

    function kind.found(p, s) tell(s.before) end

    function kind.give_back(p, s, cost, start, m1, m2, m3, m4, units)
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
        local come = (s.tick - floor(start / p.tick_us)) * p.amount
        back = min(back, cost - come, (m1 - s.tick) * p.amount + m2)
        if back <= 0 then return false end
      end
      s.level, s.dirty = max(s.level - back, 0), true
      return true, s.tick, max((m1 - s.tick) * p.amount + m2 - back, 0), max(m3 - back, 0)
    end

    function kind.owe(p, s, units)
      s.level, s.dirty = max(min(s.level + units, p.full), s.level), true
    end

    return kind
  end

  -- 3: warm-up. The last start in ticks relative to now, and permits in store.
  makers[3] = function()
    local kind = {}

    function kind.load(p, key)
      local head, used, err, excess = read(p, key)
      if err then return nil, err end
      local s = { excess = not used and excess or nil, base = 0, stored = p.cold, used = 0, repaired = used ~= nil, carried = used }
      if used and used > 0 then
        s.base, s.used = min((used - 1) * p.cell, p.furthest), 1
        s.excess = excess_of(used, 1 + ceil(s.base / p.cell), excess)
      elseif head then
        local us, fraction, stored = numbers(head)
        if not stored then return nil, OTHER end
        s.base, s.stored, s.used = (us - now) * p.drain + fraction, stored, 1
        if s.base > p.furthest then s.base, s.repaired = p.furthest, true end
      end
      s.before = { s.used, s.base, s.stored }
      return s
    end

    -- Permits in store now, and the first start, from now.
    local function rest(p, s)
      if s.used == 0 then return p.cold, 0 end
      local paid = s.base + price(p.cold, s.stored, p.cell)
      if paid > 0 then return s.stored, paid end
      return min(s.stored - paid, p.cold), 0
    end

    function kind.fits(p, s, cost, mode)
      local longest = mode == 1 and p.wait or 0
      if (cost - 1) * p.cell > longest then return nil end
      local stored, first = rest(p, s)
      local spent = cost * p.cell
      local start = first + price(p.cold, stored, spent) - price(p.cold, stored, p.cell)
      if start <= longest then return start, max(stored - spent, 0) end
    end

    function kind.apply(s, start, stored) s.base, s.stored, s.used, s.dirty = start, stored, 1, true end

    function kind.save(p, s, key)
      local again = s.base + price(p.cold, s.stored, p.cell) + p.cold - s.stored
      if s.used == 0 then return call('DEL', key) end
      local us = floor(s.base / p.drain)
      local text = format('%d:%d:%d%s', now + us, s.base - us * p.drain, s.stored, tag_of(p, s))
      return pcall('SET', key, text, 'PX', kept(s, max(again, 0) / p.drain))
    end

    function kind.found(p, s)
      tell(s.before[1]); tell(s.before[2]); tell(s.before[3])
    end

    -- Only the last start: then the state is as if no more than the rest had been asked for.
    function kind.give_back(p, s, cost, start, m1, m2, m3, m4, units)
      if s.used == 0 or (m1 - now) * p.drain + m2 ~= s.base then return false end
      local kept = max(cost - units, 0) * p.cell
      local span = price(p.cold, m4, kept)
      s.base, s.stored, s.dirty = s.base - m3 + span, max(m4 - kept, 0), true
      local us = floor(s.base / p.drain)
      return true, now + us, s.base - us * p.drain, span
    end

    function kind.owe(p, s, units)
      local stored = rest(p, s)
      local base = s.used == 1 and max(s.base, 0) or 0
      local owed = min(base + units * p.cell, p.furthest)
      if s.used == 1 then owed = max(owed, s.base) end
      s.base, s.stored, s.used, s.dirty = owed, stored, 1, true
    end

    return kind
  end

  -- 4: sliding window and sliding log. A list: its limit, the total, then slice and units
  -- of each slice, oldest first. Only as much of it is read as the questions need.
  makers[4] = function()
    local kind = {}

    -- Makes sure that the first `n` entries are known.
    local function know(s, n)
      while s.known < n and s.known < s.stored do
        local from = 2 + 2 * (s.gone + s.known)
        local list = call('LRANGE', s.key, from, from + 63)
        for i = 1, #list, 2 do
          s.known = s.known + 1
          if s.known < s.stored or not s.slices[s.known] then
            s.slices[s.known], s.units[s.known] = tonumber(list[i]), tonumber(list[i + 1])
          end
        end
        if #list == 0 then s.known = s.stored end
      end
    end

    local function append(s, slice, units)
      s.n = s.n + 1
      s.slices[s.n], s.units[s.n] = slice, units
      if s.known == s.n - 1 then s.known = s.n end
      s.total, s.dirty = s.total + units, true
    end

    function kind.load(p, key)
      local s = { key = key, n = 0, stored = 0, gone = 0, known = 0, total = 0, slices = {}, units = {}, walked = 0 }
      local head = pcall('LRANGE', key, 0, 1)
      local tag, excess = split(head[1] or '')
      if head.err or (head[1] and tag ~= p.tag) then
        local used, till, _
        if head.err then
          _, used, _, till = read(p, key)
        else
          used, till = used_of_list(call('LRANGE', key, 0, -1), tag)
          if used then used, till = carry(p, used, till, excess) end
        end
        if not used then return nil, OTHER end
        s.rebuilt, s.repaired, s.carried = true, true, true
        s.excess = excess_of(used, min(used, p.amount), till)
        used = min(used, p.amount)
        if used > 0 then append(s, floor(now / p.slice_us), used) end
      elseif head[1] then
        s.excess = excess
        s.total = tonumber(head[2])
        s.n = (call('LLEN', key) - 2) / 2
        s.stored = s.n
        -- What no longer counts is forgotten.
        local current = floor(now / p.slice_us)
        local i = 1
        while i <= s.n do
          know(s, i)
          if s.slices[i] + p.span >= current then break end
          s.total = s.total - s.units[i]
          i = i + 1
        end
        local gone = i - 1
        if gone > 0 then
          local slices, units = {}, {}
          for j = i, s.known do slices[j - gone], units[j - gone] = s.slices[j], s.units[j] end
          s.slices, s.units, s.gone = slices, units, gone
          s.n, s.stored, s.known = s.n - gone, s.stored - gone, s.known - gone
          s.repaired = true
        end
        if s.n > 0 then
          local last = call('LRANGE', key, -2, -1)
          s.slices[s.n], s.units[s.n] = tonumber(last[1]), tonumber(last[2])
          -- What a clock that was ahead put further on than any wait could.
          local furthest = current + ceil(p.wait_us / p.slice_us)
          if s.slices[s.n] > furthest then
            know(s, s.n)
            local ahead = 0
            while s.n > 0 and s.slices[s.n] > furthest do
              ahead = ahead + s.units[s.n]
              s.slices[s.n], s.units[s.n], s.n = nil, nil, s.n - 1
            end
            s.total, s.known, s.stored, s.rebuilt, s.repaired = s.total - ahead, s.n, s.n, true, true
            if s.n > 0 and s.slices[s.n] == furthest then
              s.units[s.n], s.total, s.dirty = s.units[s.n] + ahead, s.total + ahead, true
            else
              append(s, furthest, ahead)
            end
            s.stored = s.n
          end
        else
          s.rebuilt = true
        end
      else
        s.rebuilt = true
      end
      s.dirty, s.n_before, s.total_before, s.last_before = nil, s.n, s.total, s.units[s.n]
      return s
    end

    function kind.fits(p, s, cost, mode)
      if cost > p.amount then return nil end
      local earliest = floor(now / p.slice_us)
      if s.n > 0 then earliest = max(earliest, s.slices[s.n]) end
      local excess, i = s.total + cost - p.amount, 0
      while excess > 0 and i < s.n do
        i = i + 1
        know(s, i)
        excess = excess - s.units[i]
        earliest = max(earliest, s.slices[i] + p.span + 1)
      end
      s.walked = max(s.walked, i)
      local wait = max(earliest * p.slice_us - now, 0)
      if wait <= (mode == 1 and p.wait_us or 0) then return earliest end
    end

    function kind.apply(s, slice, _, units)
      if s.n > 0 and s.slices[s.n] == slice then
        s.units[s.n] = s.units[s.n] + units
        s.total, s.dirty = s.total + units, true
      else
        append(s, slice, units)
      end
    end

    function kind.save(p, s, key)
      if s.n == 0 and not s.excess then return call('DEL', key) end
      local list, done
      if s.rebuilt or s.n == 0 then
        know(s, s.n)
        -- Whether the server takes writes, before anything is given up.
        local err = pcall('SETRANGE', key, 0, '')
        if type(err) == 'table' and err.err and not find(err.err, 'WRONGTYPE', 1, true) then return err end
        call('DEL', key)
        list, done = { tag_of(p, s), s.total }, 0
      else
        -- The first write says whether the server takes any.
        local err = pcall('LSET', key, 1, s.total)
        if type(err) == 'table' and err.err then return err end
        if s.gone > 0 then
          call('LPOP', key, 2 + 2 * s.gone)
          call('LPUSH', key, s.total, tag_of(p, s))
        end
        call('LSET', key, -1, s.units[s.stored])
        list, done = {}, s.stored
      end
      for i = done + 1, s.n do
        list[#list + 1], list[#list + 2] = s.slices[i], s.units[i]
        if #list >= 1000 then
          local err = pcall('RPUSH', key, unpack(list))
          if type(err) == 'table' and err.err then return err end
          list = {}
        end
      end
      if #list > 0 then
        local err = pcall('RPUSH', key, unpack(list))
        if type(err) == 'table' and err.err then return err end
      end
      local last = s.slices[s.n]
      call('PEXPIRE', key, kept(s, last and (last + p.span + 1) * p.slice_us - now or 0))
    end

    -- The total and the entries that the questions met; the rest as one, in the last.
    function kind.found(p, s)
      local n = min(s.walked, s.n_before)
      local rest = s.total_before
      tell(s.total_before)
      local entries = n
      if n < s.n_before then entries = n + 1 end
      tell(n)
      tell(entries)
      for i = 1, entries do
        local units = s.units[i]
        if i == entries and n < s.n_before then
          tell(s.slices[s.n_before])
          units = rest
        else
          tell(s.slices[i])
          if i == s.n_before then units = s.last_before end
        end
        tell(units)
        rest = rest - units
      end
    end

    -- Makes sure that entry `i` is known, and some before it.
    local function see(s, i)
      if i < 1 or s.slices[i] then return end
      local first = max(i - 31, 1)
      local from = 2 + 2 * (s.gone + first - 1)
      local list = call('LRANGE', s.key, from, from + 2 * (i - first) + 1)
      for at = 1, #list, 2 do
        local entry = first + (at - 1) / 2
        if not s.slices[entry] then s.slices[entry], s.units[entry] = tonumber(list[at]), tonumber(list[at + 1]) end
      end
    end

    function kind.give_back(p, s, cost, start, m1, m2, m3, m4, units)
      -- From the end: what is given back is mostly new.
      local low = s.n
      see(s, low)
      while low > 0 and s.slices[low] > m1 do
        low = low - 1
        see(s, low)
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
        s.stored, s.known = s.n, min(s.known, s.n)
        see(s, s.n)
      end
      s.dirty = true
      return true
    end

    function kind.owe(p, s, units)
      local owed = min(units, max(p.amount - s.total, 0))
      if owed == 0 then return end
      local slice = floor(now / p.slice_us)
      if s.n > 0 then slice = max(slice, s.slices[s.n]) end
      kind.apply(s, slice, nil, owed)
    end

    return kind
  end

  -- 5: places. Three sorted sets: who holds (until when), who waits (in which order), and
  -- until when they are taken to be alive. A member is `owner.number:units`; `#` holds the
  -- sum, below zero, out of the way of times.
  local function units_of(member) return tonumber(match(member, ':(%d+)$')) or 0 end

  makers[5] = function()
    local kind = {}

    local function hand_on(p, s)
      while s.waiting > 0 do
        local first = call('ZRANGE', s.queue, 0, 0)[1]
        local units = units_of(first)
        if s.held + units > p.amount then return end
        if type(pcall('ZADD', s.key, now + p.lease_us, first)) == 'table' then return end
        call('ZREM', s.queue, first)
        call('ZREM', s.alive, first)
        s.held, s.waiting, s.dirty = s.held + units, s.waiting - 1, true
      end
    end
    kind.hand_on = hand_on

    function kind.load(p, key, queue, alive)
      local s = { key = key, queue = queue, alive = alive }
      local sum = pcall('ZSCORE', key, '#')
      if type(sum) == 'table' then return nil, OTHER end
      s.held = sum and -sum or 0
      if s.held > 0 then
        for _, member in ipairs(call('ZRANGEBYSCORE', key, 0, now)) do
          call('ZREM', key, member)
          s.held, s.dirty = max(s.held - units_of(member), 0), true
        end
      end
      s.waiting = call('ZCARD', queue)
      if s.waiting > 0 then
        for _, member in ipairs(call('ZRANGEBYSCORE', alive, '-inf', now)) do
          call('ZREM', queue, member)
          call('ZREM', alive, member)
          s.waiting = s.waiting - 1
        end
        hand_on(p, s)
      end
      s.repaired, s.dirty = s.dirty, nil
      s.held_before, s.waiting_before = s.held, s.waiting
      return s
    end

    function kind.fits(p, s, cost, mode)
      if (mode == 1 or mode == 3) and s.waiting == 0 and s.held + cost <= p.amount then return true end
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
          local err = pcall('ZADD', key, now + p.lease_us, member)
          if type(err) == 'table' and err.err then return err end
        end
        local err = pcall('ZADD', key, -s.held, '#')
        if type(err) == 'table' and err.err then return err end
        -- As long as the longest lease, which may be another node's.
        local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
        call('PEXPIRE', key, keep(max(tonumber(last) - now, p.lease_us)))
      end
      if s.waiting > 0 then
        call('PEXPIRE', s.queue, keep(p.waiter_us))
        call('PEXPIRE', s.alive, keep(p.waiter_us))
      end
    end

    function kind.found(p, s) tell(s.held_before); tell(s.waiting_before) end

    return kind
  end

  local kinds = {}
  for _, p in ipairs(plans) do
    local kind = kinds[p.number]
    if not kind then kind = makers[p.number](); kinds[p.number] = kind end
    p.kind = kind
  end

  local function load(p)
    key = key + 1
    if p.number ~= 5 then return p.kind.load(p, KEYS[key]) end
    key = key + 2
    return p.kind.load(p, KEYS[key - 2], KEYS[key - 1], KEYS[key])
  end

  -- Writes what changed. Tells the error if the server takes no writes, unless only what
  -- no longer counts was to be forgotten: that can wait.
  local function save(p, s, name)
    if not s.dirty and not s.repaired then return nil end
    local result = p.kind.save(p, s, name)
    return s.dirty and type(result) == 'table' and result.err
  end

  -- Writes, and tells how it went with up to two numbers.
  local function end_of(p, s, name, first, second)
    local err = save(p, s, name)
    if err then return tell(err) end
    tell(0)
    if first then tell(first) end
    if second then tell(second) end
  end

  local ops = {}

  -- One key: plan, number of runs; mode, count and cost of each run.
  ops[1] = function()
    local p, runs = plans[a[at]], a[at + 1]
    at = at + 2
    local s, err = load(p)
    if err then
      at = at + 3 * runs
      return tell(err)
    end
    local takens = {}
    for r = 1, runs do
      local mode, count, cost = a[at], a[at + 1], a[at + 2]
      at = at + 3
      local taken = 0
      if cost == 0 then
        taken = count
      elseif mode == 2 then
        p.kind.fits(p, s, cost, 0)
      elseif p.kind.take then
        taken = p.kind.take(p, s, cost, mode, count)
      else
        while taken < count do
          local x, y = p.kind.fits(p, s, cost, mode)
          if not x then break end
          p.kind.apply(s, x, y, cost)
          taken = taken + 1
        end
      end
      takens[r] = taken
    end
    err = save(p, s, KEYS[key])
    if err then return tell(err) end
    tell(0)
    p.kind.found(p, s)
    for r = 1, runs do tell(takens[r]) end
  end

  -- Several keys: number of keys, their plans, number of requests; mode, costs, and a
  -- member for each key of places, of each request. All of a request is charged, or none.
  ops[2] = function()
    local n, ps, ss, names, bad = a[at], {}, {}, {}, nil
    for i = 1, n do
      local err
      ps[i], names[i] = plans[a[at + i]], KEYS[key + 1]
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
        if p.number == 5 then members[i] = a[at]; at = at + 1 end
        if not bad and cost > 0 then
          xs[i], ys[i] = p.kind.fits(p, ss[i], cost, mode)
          if xs[i] == nil then fit = false end
        end
      end
      takens[r] = fit and 1 or 0
      for i = 1, n do
        local cost = a[costs + i]
        if fit and mode ~= 2 and cost > 0 then
          ps[i].kind.apply(ss[i], xs[i], ys[i], cost, members[i])
        end
      end
    end
    -- What was repaired is written also if something else is wrong: the sum of places must
    -- follow what was taken out of them.
    for i = 1, n do
      if ss[i] then bad = save(ps[i], ss[i], names[i]) or bad end
    end
    if bad then return tell(bad) end
    tell(0)
    for i = 1, n do ps[i].kind.found(ps[i], ss[i]) end
    for r = 1, requests do tell(takens[r]) end
  end

  -- Give back: plan, how many, whether the first is the caller's own; of each the units that
  -- are charged, the start, the mark (four numbers) and the units. Those who are not the
  -- caller's were cancelled earlier, when others had reserved behind them. Tells the first
  -- one's mark, and which came back.
  ops[3] = function()
    local p, n, has_own, first = plans[a[at]], a[at + 1], a[at + 2] == 1, at + 3
    at = first + 7 * n
    local s, err = load(p)
    if err then return tell(err) end
    local m1, m2, m3 = a[first + 2], a[first + 3], a[first + 4]
    local given = {}
    -- Units of a limit that has been changed are not this one's.
    for i = 1, s.carried and 0 or n do
      local x = first + 7 * (i - 1)
      local is_given, n1, n2, n3 = p.kind.give_back(
        p, s, a[x], a[x + 1], a[x + 2], a[x + 3], a[x + 4], a[x + 5], a[x + 6])
      given[i] = is_given and 1 or 0
      if i == 1 and n1 then m1, m2, m3 = n1, n2, n3 end
      -- What is in its way is in the way of those before it.
      if i == 1 and has_own and not is_given then
        for j = 2, n do given[j] = 0 end
        break
      end
    end
    err = save(p, s, KEYS[key])
    if err then return tell(err) end
    tell(0)
    tell(m1); tell(m2); tell(m3)
    for i = 1, n do tell(given[i] or 1) end
  end

  -- Owe: plan, units.
  ops[4] = function()
    local p, units = plans[a[at]], a[at + 1]
    at = at + 2
    local s, err = load(p)
    if err then return tell(err) end
    p.kind.owe(p, s, units)
    end_of(p, s, KEYS[key])
  end

  -- Reset.
  ops[5] = function()
    key = key + 1
    call('DEL', KEYS[key])
    tell(0)
  end

  -- Release: plan, member, what is left of it ('' for nothing).
  ops[6] = function()
    local p, member, left = plans[a[at]], a[at + 1], a[at + 2]
    at = at + 3
    local s, err = load(p)
    if err then return tell(err) end
    local till = call('ZSCORE', s.key, member)
    if till then
      if left ~= '' then
        err = pcall('ZADD', s.key, till, left)
        if type(err) == 'table' then return tell(err.err) end
        s.held = s.held + units_of(left)
      end
      call('ZREM', s.key, member)
      s.held, s.dirty = s.held - units_of(member), true
      p.kind.hand_on(p, s)
    end
    end_of(p, s, s.key, till and 1 or 0)
  end

  -- Renew: plan, number of members, the members.
  ops[7] = function()
    local p, n = plans[a[at]], a[at + 1]
    local s, err = load(p)
    if err then
      at = at + 2 + n
      return tell(err)
    end
    tell(0)
    for i = 1, n do
      local held = call('ZSCORE', s.key, a[at + 1 + i])
      local renewed = held and pcall('ZADD', s.key, now + p.lease_us, a[at + 1 + i])
      s.dirty = s.dirty or held
      -- 2: it is held, but the server takes no writes.
      tell(not held and 0 or type(renewed) == 'table' and 2 or 1)
    end
    at = at + 2 + n
    save(p, s, s.key)
  end

  -- Queue for a place: plan, member, 1 at the first time. 0: waiting, 1: held, 2: full,
  -- 3: no longer in the queue.
  ops[8] = function()
    local p, member, is_new = plans[a[at]], a[at + 1], a[at + 2]
    at = at + 3
    local s, err = load(p)
    if err then return tell(err) end
    local units, state = units_of(member), 0
    if call('ZSCORE', s.key, member) then
      state = 1
      pcall('ZADD', s.key, now + p.lease_us, member)
    elseif call('ZSCORE', s.queue, member) then
      pcall('ZADD', s.alive, now + p.waiter_us, member)
    elseif is_new == 0 then
      state = 3
    elseif s.waiting == 0 and s.held + units <= p.amount then
      state = 1
      p.kind.apply(s, nil, nil, units, member)
    elseif s.waiting >= p.queue or units > p.amount then
      state = 2
    else
      local last = call('ZRANGE', s.queue, -1, -1, 'WITHSCORES')[2]
      err = pcall('ZADD', s.queue, (tonumber(last) or 0) + 1, member)
      if type(err) == 'table' then return tell(err.err) end
      call('ZADD', s.alive, now + p.waiter_us, member)
      s.waiting = s.waiting + 1
    end
    s.dirty = true
    end_of(p, s, s.key, state)
  end

  -- Leave: plan, member. What it was given meanwhile goes on.
  ops[9] = function()
    local p, member = plans[a[at]], a[at + 1]
    at = at + 2
    local s, err = load(p)
    if err then return tell(err) end
    if call('ZREM', s.queue, member) == 1 then
      call('ZREM', s.alive, member)
      s.waiting = s.waiting - 1
    elseif call('ZREM', s.key, member) == 1 then
      s.held = s.held - units_of(member)
    end
    s.dirty = true
    p.kind.hand_on(p, s)
    end_of(p, s, s.key)
  end

  -- A node is alive: its name, and for how long it is taken to be. Tells how many are.
  ops[10] = function()
    key = key + 1
    local node, life = a[at], a[at + 1]
    at = at + 2
    call('ZREMRANGEBYSCORE', KEYS[key], '-inf', now)
    local err = pcall('ZADD', KEYS[key], now + life, node)
    if type(err) == 'table' then return tell(err.err) end
    call('PEXPIRE', KEYS[key], keep(life))
    tell(0)
    tell(call('ZCARD', KEYS[key]))
  end

  return ops
end

local names = KEYS

-- The level of a bucket by the text that the same limit has written; nil if it has not.
local function level_of(p, text)
  local tag, us, fraction = p.tag, sub(text, 1, 16), 0
  -- Sixteen digits until the year 2286, unless there is a fraction.
  if sub(text, 17) ~= tag then
    if sub(text, -#tag) ~= tag then return nil end
    us = sub(text, 1, -#tag - 1)
    local colon = find(us, ':', 1, true)
    if colon then us, fraction = sub(us, 1, colon - 1), tonumber(sub(us, colon + 1)) end
  end
  us = tonumber(us)
  if not us or not fraction then return nil end
  local ahead = us - now
  if ahead < 0 then return 0 end
  if ahead > p.full_us then return nil end
  local level = ahead * p.drain + fraction
  return level <= p.full and level or nil
end

-- The level of a key of a bucket, if what it holds is that or nothing.
local function look(p, text)
  if not text then return 0 end
  return type(text) == 'string' and level_of(p, text)
end

-- Writes a level; tells what went wrong.
local function put(p, name, level)
  local fraction = level % p.drain
  local us, text = (level - fraction) / p.drain, nil
  local ms = us + 1000
  ms = (ms - ms % 1000) / 1000 + 1
  if ms < keep_ms then ms = keep_ms end
  if fraction > 0 then text = format('%d:%d%s', now + us, fraction, p.tag)
  else text = format('%d%s', now + us, p.tag) end
  return pcall('SET', name, text, 'PX', format('%d', ms)).err
end

-- Any number of runs about one key of a bucket. False if it has to go the long way.
local function bucket(p)
  local name = names[key + 1]
  local level = look(p, pcall('GET', name))
  if not level then return false end
  key = key + 1
  local runs, status, before = a[at + 1], outs + 1, level
  at = at + 2
  out[status], out[status + 1], outs = 0, level, outs + 2
  for _ = 1, runs do
    local mode, fit, added = a[at], a[at + 1], a[at + 2] * p.cell
    at = at + 3
    if mode == 2 then
      fit = 0
    elseif added > 0 then
      fit = max(min(floor(((mode == 1 and p.full or p.burst) - level) / added), fit), 0)
      level = level + fit * added
    end
    outs = outs + 1
    out[outs] = fit
  end
  local err = level > before and put(p, name, level)
  if err then
    for i = status + 1, outs do out[i] = nil end
    out[status], outs = err, status
  end
  return true
end

local is_each_once, groups, ops = a[at] == 1, a[at + 1], nil
at = at + 2

-- One unit of a bucket, the long way.
local function unit(plan)
  local numbers, here, status = a, at, outs + 1
  a, at, ops = { plan, 1, 0, 1, 1 }, 1, ops or the_rest()
  ops[1]()
  a, at = numbers, here
  if out[status] == 0 then
    local level = out[status + 1]
    out[status] = out[status + 2] == 1 and level or -1 - level
    out[status + 1], out[status + 2], outs = nil, nil, status
  end
end

-- Nothing here writes to a key that it has yet to read: then all are read at once. A key
-- that holds something else than a text is told as none, so those are looked at again.
local texts = is_each_once and pcall('MGET', unpack(names)) or {}

for _ = 1, groups do
  local op = a[at]
  at = at + 1
  if op > 31 then
    -- By far the most: one unit of a bucket, now. Tells the level that it found, or
    -- -1 - level if that left no room.
    local p, name = plans[op - 31], names[key + 1]
    local level = look(p, texts[key + 1] or pcall('GET', name))
    if not level then
      unit(op - 31)
    else
      key, outs = key + 1, outs + 1
      if level + p.cell > p.burst then
        out[outs] = -1 - level
      else
        out[outs] = put(p, name, level + p.cell) or level
      end
    end
  else
    local p = op == 1 and plans[a[at]]
    if not (p and p.number == 1 and bucket(p)) then
      ops = ops or the_rest()
      ops[op]()
    end
  end
end
return out
