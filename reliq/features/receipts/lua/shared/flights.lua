-- Messages in flight: received, and invisible until a moment of their own. `received` has their ids by that moment;
-- `receipts` has them by id, each behind its turn. A receipt names a push of a message: by how its element begins, through
-- the nonce, which each receive makes anew. While a message is in flight, another one with the same id has its name there.
--
-- An ordering key is in flight as long as one of its messages is: `active` then has a blank and their number in the place
-- of an id. A message that becomes visible again enters the line of its key at its turn. Requires `element` and `place`.

local FIRST_TURN = string.rep('0', 16) -- of a message that was not in line

-- The ordering key of a message; nil for other keys, whose slot or place the message keeps in flight.
local function ordering_key_of(element)
  local group = group_of(element)
  if group and not (is_laned(element) or is_latest(group) or is_cyclic(element)) then return group end
end

local function in_flight_of(q, group)
  return tonumber(string.match(redis.call('HGET', q.active, group) or '', '^ (%d+)$') or 0)
end

-- Note how many messages of an ordering key are in flight: with the last one the key passes on.
local function note_in_flight(q, group, number)
  if number > 0 then
    redis.call('HSET', q.active, group, ' ' .. number)
  elseif not pass_on(q, group) then
    redis.call('HDEL', q.active, group)
  end
end

local function check_flights(received, receipts)
  redis.call('ZCARD', received)
  redis.call('HLEN', receipts)
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

local function take_off(q, received, receipts, name, turn, element, visible_at)
  local group = ordering_key_of(element)
  if group then redis.call('HSET', q.active, group, ' ' .. in_flight_of(q, group) + 1) end
  local field = redis.call('HEXISTS', receipts, id_of(name)) == 1 and name or id_of(name)
  redis.call('ZADD', received, string.format('%.0f', visible_at), field)
  redis.call('HSET', receipts, field, turn .. element)
  return field
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

-- Delete what belongs to messages that were in flight and are done. `counter`: what happened to them.
local function finish_flights(q, elements, counter)
  if #elements == 0 then return end
  for _, element in ipairs(elements) do
    local group = ordering_key_of(element)
    leave_queue(q, element)
    if group then note_in_flight(q, group, in_flight_of(q, group) - 1) end
  end
  have_left(q, elements, counter)
  redis.call('HINCRBY', q.counters, counter, #elements)
end

-- Make messages ready again, in this order. Each is {element, turn}.
local function make_visible(q, landed)
  if #landed == 0 then return end
  for _, one in ipairs(landed) do
    local element, turn = unpack(one)
    local group = ordering_key_of(element)
    note(q, 'returned', element)
    if not group then
      place(q, element)
    else
      if is_away(q, group, element) then
        join_line(q, group, element, true)
      else
        redis.call('ZADD', q.waiting, 0, group .. turn .. element)
        track(q, element, group .. turn)
      end
      note_in_flight(q, group, in_flight_of(q, group) - 1)
    end
  end
  redis.call('HINCRBY', q.counters, 'returned', #landed)
end
