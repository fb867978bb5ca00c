-- Messages in flight: received, and invisible until a moment of their own. `received` has their ids by that moment;
-- `receipts` has them by id, each behind its turn. A receipt names a push of a message: by how its element begins, through
-- the nonce, which each receive makes anew. While a message is in flight, another one with the same id has its name there.
--
-- An ordering key is in flight as long as one of its messages is: `active` then has a blank and their turns in the place of
-- an id. A message that becomes visible again enters the line of its key at its turn; one that comes before all in flight may
-- be received before these end: `early` has its group. Requires `element` and `place`.

local FIRST_TURN = string.rep('0', 16) -- of a message that was not in line
local PART = 2000 -- fields of one command

-- The ordering key of a message; nil for other keys, whose slot or place the message keeps in flight.
local function ordering_key_of(element)
  local group = group_of(element)
  if group and not (is_laned(element) or is_latest(group) or is_cyclic(element)) then return group end
end

-- The turns of the messages of an ordering key that are in flight, one behind the other.
local function turns_in_flight(q, group)
  return string.match(redis.call('HGET', q.active, group) or '', '^ (%d+)$') or ''
end

-- The lowest and the highest of these turns; nil if there is none.
local function ends_of(turns)
  local lowest, highest
  for at = 1, #turns, #FIRST_TURN do
    local turn = string.sub(turns, at, at + #FIRST_TURN - 1)
    if not lowest or turn < lowest then lowest = turn end
    if not highest or turn > highest then highest = turn end
  end
  return lowest, highest
end

-- The first in the line of a key, if its turn is before this one.
local function first_before(q, group, turn)
  local first = first_in_line(q, group)
  return first and string.sub(first, GROUP + 1, GROUP + #FIRST_TURN) < turn and first
end

local function note_early(q, early, group)
  local turn = ends_of(turns_in_flight(q, group))
  redis.call(turn and first_before(q, group, turn) and 'SADD' or 'SREM', early, group)
end

-- The turns that are left without these.
local function without(turns, gone)
  local leaving, stay = {}, {}
  for _, turn in ipairs(gone) do leaving[turn] = (leaving[turn] or 0) + 1 end
  for at = 1, #turns, #FIRST_TURN do
    local turn = string.sub(turns, at, at + #FIRST_TURN - 1)
    if (leaving[turn] or 0) > 0 then
      leaving[turn] = leaving[turn] - 1
    else
      stay[#stay + 1] = turn
    end
  end
  return table.concat(stay)
end

-- Note that messages of an ordering key, at these turns, have left flight: with the last one the key passes on.
local function leave_flight(q, early, group, gone)
  local stay = without(turns_in_flight(q, group), gone)
  if #stay > 0 then
    redis.call('HSET', q.active, group, ' ' .. stay)
  elseif not pass_on(q, group) then
    redis.call('HDEL', q.active, group)
  end
  note_early(q, early, group)
end

-- Do so for each ordering key of messages that have left flight. Each is {element, turn}.
local function leave_flights(q, early, landed)
  local groups, turns = {}, {}
  for _, one in ipairs(landed) do
    local group = ordering_key_of(one[1])
    if group then
      if not turns[group] then groups[#groups + 1], turns[group] = group, {} end
      table.insert(turns[group], one[2])
    end
  end
  for _, group in ipairs(groups) do leave_flight(q, early, group, turns[group]) end
end

local function check_flights(received, receipts, early)
  redis.call('ZCARD', received)
  redis.call('HLEN', receipts)
  redis.call('SCARD', early)
end

local function is_named(record, name)
  return record and string.sub(record, #FIRST_TURN + 1, #FIRST_TURN + #name) == name
end

-- Find a message in flight by its name; returns its field, or nil, and the ms at which it becomes visible. Third, whether
-- a later receive of it is in flight under this field.
local function find_flight(received, receipts, name)
  local field, later = id_of(name), false
  if not is_named(redis.call('HGET', receipts, field), name) then
    if redis.call('HEXISTS', receipts, name) == 1 then
      field = name
    else
      later = true
    end
  end
  local visible_at = tonumber(redis.call('ZSCORE', received, field) or nil)
  if not visible_at then return nil end
  return field, visible_at, later
end

-- What is in flight under these names and their ids: the records by field.
local function records_of(receipts, names)
  local fields, found = {}, {}
  for _, name in ipairs(names) do fields[#fields + 1], fields[#fields + 2] = id_of(name), name end
  for from = 1, #fields, PART do
    local records = redis.call('HMGET', receipts, unpack(fields, from, math.min(#fields, from + PART - 1)))
    for at, record in ipairs(records) do found[fields[from + at - 1]] = record end
  end
  return found
end

-- The field under which a message is in flight, among these records; nil if it is not.
local function field_of(records, name)
  return is_named(records[name], name) and name or is_named(records[id_of(name)], name) and id_of(name) or nil
end

-- The names in a list of an attempt, each of which is behind a mark and a blank.
local function marked_names(entries)
  local names = {}
  for at, entry in ipairs(entries) do names[at] = string.sub(entry, string.find(entry, ' ', 1, true) + 1) end
  return names
end

-- Take messages out of flight by their fields.
local function land_all(received, receipts, fields)
  for from = 1, #fields, PART do
    local to = math.min(#fields, from + PART - 1)
    redis.call('HDEL', receipts, unpack(fields, from, to))
    redis.call('ZREM', received, unpack(fields, from, to))
  end
end

-- Take a message out of flight; returns its element and its turn, or nil if it is not in flight.
local function land(received, receipts, field)
  local record = redis.call('HGET', receipts, field)
  if not record then
    redis.call('ZREM', received, field)
    return nil
  end
  redis.call('HDEL', receipts, field)
  redis.call('ZREM', received, field)
  return string.sub(record, #FIRST_TURN + 1), string.sub(record, 1, #FIRST_TURN)
end

-- Delete what belongs to messages that were in flight and are done. Each is {element, turn}. `counter`: what happened to
-- them.
local function finish_flights(q, early, landed, counter)
  if #landed == 0 then return end
  local elements = {}
  for at, one in ipairs(landed) do
    elements[at] = one[1]
    leave_queue(q, one[1])
  end
  leave_flights(q, early, landed)
  have_left(q, elements, counter)
  redis.call('HINCRBY', q.counters, counter, #elements)
end

-- Make messages ready again, in this order: first all that are of the key of the first one. Those without a key come before
-- all that were not received. Each is {element, turn}.
local function make_visible(q, early, landed)
  if #landed == 0 then return end
  local first = {}
  for _, one in ipairs(landed) do
    local element, turn = unpack(one)
    local group = ordering_key_of(element)
    note(q, 'returned', element)
    if not (group_of(element) or priority_of(element) or is_member(q, element)) then
      track_ready(q, element)
      first[#first + 1] = element
    elseif not group then
      put_back(q, element)
    else
      redis.call('ZADD', q.waiting, 0, group .. turn .. element)
      track(q, element, group .. turn)
    end
  end
  for at = #first, 1, -1 do redis.call('RPUSH', q.messages, first[at]) end
  leave_flights(q, early, landed)
  redis.call('HINCRBY', q.counters, 'returned', #landed)
end

-- How many messages at each end of a list, or of a line, are looked at to find one.
local LOOKS = 500

-- Find a ready message; returns its list, its place there, and its element.
local function find_ready(q, id)
  for _, list in ipairs({q.messages, q.high, q.low}) do
    for _, from in ipairs({0, -LOOKS}) do
      for at, element in ipairs(redis.call('LRANGE', list, from, from + LOOKS - 1)) do
        if id_of(element) == id then
          local first = from < 0 and math.max(0, redis.call('LLEN', list) - LOOKS) or 0
          return list, first + at - 1, element
        end
      end
    end
  end
end

-- Whether a message waits for its key.
local function is_waiting(q, id, group)
  if group == '' then return false end
  local line = redis.call('ZRANGEBYLEX', q.waiting, '[' .. group, '(' .. group .. '\255', 'LIMIT', 0, LOOKS)
  for _, member in ipairs(line) do
    if id_of(element_in_line(member)) == id then return true end
  end
  return false
end
