-- receive: put messages that a consumer has just claimed in flight, and with them those that wait for the same keys.
--
-- KEYS  places, processing, received, receipts, early, slots, attempt?
-- ARGV  visible: number, consumer, moves... [former, again, name, line]
--       visible: ms
--       former: how its element begins, through the nonce
--       again: its new element, and `name` the beginning of that
--       line: group and turn of a message that waits for its key, behind a claimed one or before those in flight; '' = it
--             was claimed
-- Returns {codes, messages in flight}. A code is one letter for each move: d = done, also by an earlier call; n = the message is not there any more, or it is
--         not the first of its line
-- `attempt`: gets the fields, so that `receive_again` finds them.
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, holders, flights
-- names of the keys and arguments (tools/generate_scripts.py)
local processing, received, receipts, early, attempt = KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[20]
local visible, consumer = tonumber(ARGV[1]), ARGV[2]
local PLACES, SLOTS, MOVES, MOVES_STEP, FORMER, AGAIN, NAME, LINE = 1, 18, 3, 4, 0, 1, 2, 3
-- end of the names
local ATTEMPT_MS = 300000 -- as SQS keeps one
local q, slots = places(PLACES), named_slots(SLOTS)
local now = now_ms()
redis.call('LLEN', processing) -- wrong types are refused here, before the first write
check_flights(received, receipts, early)
check_slots(q, slots)
if attempt then redis.call('LLEN', attempt) end

local names = {}
for at = MOVES, #ARGV, MOVES_STEP do names[#names + 1] = ARGV[at + NAME] end
local records = records_of(receipts, names)

-- What goes into flight is written at the end, in one command a key.
local codes, fields, scored, written = {}, {}, {}, {}
local function take_one(at, element, turn)
  local name, again = ARGV[at + NAME], ARGV[at + AGAIN]
  local group = ordering_key_of(again)
  if group then redis.call('HSET', q.active, group, ' ' .. turns_in_flight(q, group) .. turn) end
  local field = id_of(name)
  if records[field] then field = name end -- another message with this id is in flight
  records[field] = again
  fields[#fields + 1] = field
  scored[#scored + 1], scored[#scored + 2] = string.format('%.0f', now + visible), field
  written[#written + 1], written[#written + 2] = field, turn .. again
end

local held = redis.call('LRANGE', processing, 0, -1)
local gone = {}
local function claimed(former)
  for at, element in ipairs(held) do
    if element and string.sub(element, 1, #former) == former then
      held[at] = false
      gone[#gone + 1] = element
      return element
    end
  end
end

-- The messages of a key that were in flight before this call hold back those that come after them.
local bounds = {}
local function bound_of(group)
  if bounds[group] == nil then bounds[group] = lowest(turns_in_flight(q, group)) or false end
  return bounds[group]
end

local waiting = 0
for at = MOVES, #ARGV, MOVES_STEP do
  local former, line = ARGV[at + FORMER], ARGV[at + LINE]
  local name, code = ARGV[at + NAME], 'n'
  local flying, _, later
  if records[id_of(name)] or records[name] then flying, _, later = find_flight(received, receipts, name) end
  if flying and not later then
    code = 'd'
  elseif line == '' then
    local element = claimed(former)
    if element then
      local group = ordering_key_of(element)
      if group then bounds[group] = false end -- one that is ready passes on with none in flight
      take_one(at, element, FIRST_TURN)
      code = 'd'
    end
  else
    local group, turn = string.sub(line, 1, GROUP), string.sub(line, GROUP + 1)
    local bound = bound_of(group)
    local first = turns_in_flight(q, group) ~= '' and first_in_line(q, group)
    if first and string.sub(first, 1, #line + #former) == line .. former and (not bound or turn < bound) then
      redis.call('ZREM', q.waiting, first)
      note(q, 'claimed', ARGV[at + AGAIN], consumer)
      take_one(at, element_in_line(first), turn)
      waiting, code = waiting + 1, 'd'
    end
  end
  codes[#codes + 1] = code
end
if #fields > 0 then
  redis.call('ZADD', received, unpack(scored))
  redis.call('HSET', receipts, unpack(written))
end
if #gone == #held then
  redis.call('DEL', processing)
else
  for _, element in ipairs(gone) do redis.call('LREM', processing, 1, element) end
end
note_held(q, slots, processing)
for group, bound in pairs(bounds) do
  if bound then note_early(q, early, group) end
end
if waiting > 0 then redis.call('HINCRBY', q.counters, 'claimed', waiting) end
if attempt and #fields > 0 then
  redis.call('DEL', attempt)
  redis.call('RPUSH', attempt, unpack(fields))
  redis.call('PEXPIRE', attempt, ATTEMPT_MS)
end
return {table.concat(codes), redis.call('ZCARD', received)}
