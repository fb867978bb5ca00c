-- Messages in flight: received, and invisible until a moment of their own. `received` has their names by that moment;
-- `receipts` has them by name, each behind its turn. A name is how an element begins, through its nonce: each receive gives
-- the message a new one.
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

local function take_off(q, received, receipts, name, turn, element, visible_at)
  local group = ordering_key_of(element)
  if group then redis.call('HSET', q.active, group, ' ' .. in_flight_of(q, group) + 1) end
  redis.call('ZADD', received, string.format('%.0f', visible_at), name)
  redis.call('HSET', receipts, name, turn .. element)
end

-- Take a message out of flight; returns its element and its turn, or nil if it is not in flight.
local function land(received, receipts, name)
  local record = redis.call('HGET', receipts, name)
  if not record then
    redis.call('ZREM', received, name)
    return nil
  end
  redis.call('HDEL', receipts, name)
  redis.call('ZREM', received, name)
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
