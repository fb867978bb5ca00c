-- When parked messages stop waiting. An entry of `waits` for each of them would need more memory than the rest of its record, so one
-- entry has up to 32: behind a carriage return, for each when it stops waiting (6 bytes) and its id (its length, then its text; length 0:
-- the 16 bytes of a UUID). The score is below zero, as those of other entries are above: no message of the entry stops waiting before
-- its amount of ms, and none of an earlier entry after it. An entry is removed once another one has taken its place, so the key stays.
local add_timeout, remove_timeout, take_timeouts
do
  local MOST, FEW, FROM = 32, 8, 2

  -- `struct` would do it too, but reliq.testing has none.
  local function packed(at, id)
    local a, b, c, d, e = string.match(id, '^(%x+)%-(%x+)%-(%x+)%-(%x+)%-(%x+)$')
    local digits = a and #a == 8 and #b == 4 and #c == 4 and #d == 4 and #e == 12 and a .. b .. c .. d .. e
    local text = string.char(#id) .. id
    if digits and not string.find(digits, '%u') then
      text = '\0' .. string.gsub(digits, '%x%x', function(pair) return string.char(tonumber(pair, 16)) end)
    end
    for _ = 1, 6 do
      text = string.char(at % 256) .. text
      at = math.floor(at / 256)
    end
    return text
  end

  local function ms_in(entry, from)
    local ms = 0
    for place = from, from + 5 do ms = ms * 256 + string.byte(entry, place) end
    return ms
  end

  -- Returns where the item behind this one begins.
  local function behind(entry, from)
    local length = string.byte(entry, from + 6)
    return from + 7 + (length == 0 and 16 or length)
  end

  local function id_in(item)
    if string.byte(item, 7) > 0 then return string.sub(item, 8) end
    local digits = string.gsub(string.sub(item, 8), '.', function(one) return string.format('%02x', string.byte(one)) end)
    return (string.gsub(digits, '^(........)(....)(....)(....)', '%1-%2-%3-%4-'))
  end

  -- Returns {at, item} of each message of an entry, the earliest first.
  local function items_of(entry)
    local items, from = {}, FROM
    while from <= #entry do
      local next = behind(entry, from)
      items[#items + 1] = {ms_in(entry, from), string.sub(entry, from, next - 1)}
      from = next
    end
    table.sort(items, function(one, other) return one[1] < other[1] end)
    return items
  end

  local function count_of(entry)
    local count, from = 0, FROM
    while from <= #entry do
      count, from = count + 1, behind(entry, from)
    end
    return count
  end

  -- Put entries, each behind its bound, in the place of former ones; one of them may stay as it is.
  local function replace(waits, former, entries)
    local stays = {}
    for _, new in ipairs(entries) do
      redis.call('ZADD', waits, string.format('%.0f', -new[1]), new[2])
      stays[new[2]] = true
    end
    for _, entry in ipairs(former) do
      if not stays[entry] then redis.call('ZREM', waits, entry) end
    end
  end

  -- Returns the entry of these items, if there are some.
  local function entries_of(items, from, to)
    if from > to then return {} end
    local parts = {}
    for at = from, to do parts[#parts + 1] = items[at][2] end
    return {{items[from][1], '\r' .. table.concat(parts)}}
  end

  -- The entry in which a time has its place, and its bound; nil if it would come before all entries.
  local function entry_for(waits, at)
    local found = redis.call('ZRANGEBYSCORE', waits, string.format('%.0f', -at), '(0', 'WITHSCORES', 'LIMIT', 0, 1)
    if found[1] then return found[1], -found[2] end
  end

  -- The entry behind this bound, and its bound.
  local function entry_behind(waits, bound)
    local found = redis.call('ZREVRANGEBYSCORE', waits, '(' .. string.format('%.0f', -bound), '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if found[1] then return found[1], -found[2] end
  end

  -- Where a full entry is divided: before its latest item if that is the new one, as most are, else in the middle; never between two
  -- of the same ms.
  local function cut_of(items, at)
    local cut = items[#items][1] == at and #items or math.floor(#items / 2) + 1
    while cut > 1 and items[cut][1] == items[cut - 1][1] do cut = cut - 1 end
    return cut
  end

  add_timeout = function(waits, at, id)
    local former, bound = entry_for(waits, at)
    if not former then former, bound = entry_behind(waits, 0) end
    if not former then return replace(waits, {}, {{at, '\r' .. packed(at, id)}}) end
    local entry = former .. packed(at, id)
    if count_of(entry) <= MOST then return replace(waits, {former}, {{math.min(bound, at), entry}}) end
    local items = items_of(entry)
    local cut = cut_of(items, at)
    local entries = entries_of(items, 1, cut - 1)
    entries[#entries + 1] = entries_of(items, cut, #items)[1]
    replace(waits, {former}, entries)
  end

  remove_timeout = function(waits, at, id)
    local former, bound = entry_for(waits, at)
    local item, from = packed(at, id), FROM
    while former and from <= #former and string.sub(former, from, from + #item - 1) ~= item do from = behind(former, from) end
    if not former or from > #former then return end
    local entry = string.sub(former, 1, from - 1) .. string.sub(former, from + #item)
    local left = count_of(entry)
    if left == 0 then return replace(waits, {former}, {}) end
    local other = left <= FEW and entry_behind(waits, bound)
    if other and left + count_of(other) <= MOST - FEW then
      replace(waits, {former, other}, {{bound, entry .. string.sub(other, FROM)}})
    else
      replace(waits, {former}, {{bound, entry}})
    end
  end

  -- Returns the ids of up to `limit` messages whose time is over, and takes them out, the earliest first.
  take_timeouts = function(waits, now, limit)
    local ids = {}
    while #ids < limit do
      local found = redis.call('ZREVRANGEBYSCORE', waits, '(0', string.format('%.0f', -now), 'LIMIT', 0, 1)
      if not found[1] then break end
      local items, at = items_of(found[1]), 1
      while items[at] and items[at][1] <= now and #ids < limit do
        ids[#ids + 1], at = id_in(items[at][2]), at + 1
      end
      replace(waits, found, entries_of(items, at, #items))
    end
    return ids
  end
end
