-- receive: put messages that a consumer has just claimed in flight, and with them those that wait for the same keys.
--
-- KEYS  places, processing, received, receipts, early, slots, flow, buckets, attempt?
-- ARGV  visible: number, kept: number, consumer, moves... [former, again, name, line, mark]
--       visible: ms
--       kept: ms for which `attempt` has them, behind those of earlier calls; 0: they replace these, for five minutes
--       former: how its element begins, through the nonce
--       again: its new element, and `name` the beginning of that
--       line: group and turn of a message that waits for its key, behind a claimed one or before those in flight; '' = it
--             was claimed
--             With `kept` also one behind the latest of the list, if that is the last one in flight of its key.
--       mark: a text without a blank, before its name in `attempt`; without `kept` that is its time
-- Returns {codes, messages in flight}. A code is one letter for each move: d = done, also by an earlier call; n = the message
--         is not there any more, or it is not the first of its line, or the limits of the queue hold it back
-- A micro-batch, which gives `kept`, keeps to the rates of the queue and of its keys also with what waits. Where `concurrency`
-- is limited, which counts what is claimed, nothing goes into flight.
-- `attempt`: gets the names, so that `receive_again` and `keep_received` find them.
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, flow, key_holds, holders, flights, run_limits
-- names of the keys and arguments (tools/generate_scripts.py)
local processing, received, receipts, early, flow = KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[20]
local buckets, attempt = KEYS[21], KEYS[22]
local visible, kept, consumer = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local PLACES, SLOTS, MOVES, MOVES_STEP, FORMER, AGAIN, NAME, LINE, MARK = 1, 18, 4, 5, 0, 1, 2, 3, 4
-- end of the names
local ATTEMPT_MS = 300000 -- as SQS keeps one
local JUST_CLAIMED = 2000 -- messages: more than a call has; a micro-batch of Spark may hold many others
local PAGE = 100
local q, slots = places(PLACES), named_slots(SLOTS)
local now = now_ms()
local holds = redis.call('LLEN', processing) -- wrong types are refused here, before the first write
check_flights(received, receipts, early)
check_slots(q, slots)
redis.call('HLEN', flow)
redis.call('ZCARD', buckets)
if attempt then redis.call('LLEN', attempt) end

if kept > 0 and q.concurrency then
  return {string.rep('n', (#ARGV + 1 - MOVES) / MOVES_STEP), redis.call('ZCARD', received)}
end
local names = {}
for at = MOVES, #ARGV, MOVES_STEP do names[#names + 1] = ARGV[at + NAME] end
local records = records_of(receipts, names)

-- The key behind whose latest message of the list a micro-batch goes on, and the turn of that message.
local goes_on, latest_turn
if attempt and kept > 0 then
  local latest = marked_names(redis.call('LRANGE', attempt, -1, -1))[1]
  local field = latest and field_of(records_of(receipts, {latest}), latest)
  local record = field and redis.call('HGET', receipts, field)
  if record then
    goes_on = ordering_key_of(string.sub(record, #FIRST_TURN + 1))
    latest_turn = string.sub(record, 1, #FIRST_TURN)
  end
end

-- A key, and what this call takes of it. Those of its messages that were in flight before the call hold back those
-- that come after them (`bound`).
local keys = {}
local function key_of(group)
  if not keys[group] then
    local before = turns_in_flight(q, group)
    local bound, highest = ends_of(before)
    if goes_on == group and highest == latest_turn then bound = nil end
    keys[group] = {before = before, bound = bound, taken = {}, page = {}, at = 0, passed = 0}
  end
  return keys[group]
end

-- The first in the line of a key, behind those that this call has taken. `most`: how many it may still take.
local function next_of(group, key, most)
  if key.at == #key.page then
    local size = math.min(PAGE, most)
    key.page = redis.call('ZRANGEBYLEX', q.waiting, '[' .. group, '(' .. group .. '\255', 'LIMIT', key.passed, size)
    key.at = 0
  end
  return key.page[key.at + 1]
end

-- What changes is written at the end, in one command a key.
local codes, entries, scored, written, gone, left = {}, {}, {}, {}, {}, {}
local until_ms = string.format('%.0f', now + visible)
local function put_in_flight(at, turn)
  local name, again = ARGV[at + NAME], ARGV[at + AGAIN]
  local group = ordering_key_of(again)
  if group then table.insert(key_of(group).taken, turn) end
  local field = id_of(name)
  if records[field] then field = name end -- another message with this id is in flight
  records[field] = again
  entries[#entries + 1] = (kept > 0 and ARGV[at + MARK] or until_ms) .. ' ' .. name
  scored[#scored + 1], scored[#scored + 2] = until_ms, field
  written[#written + 1], written[#written + 2] = field, turn .. again
end

local function flies_already(at)
  local name = ARGV[at + NAME]
  if not (records[id_of(name)] or records[name]) then return false end
  local flying, _, later = find_flight(received, receipts, name)
  return flying and not later
end

-- The claimed messages by id, read from the oldest ones on, which a micro-batch puts in flight first.
local claimed, unread = {}, math.min(holds, JUST_CLAIMED)
local function read_claimed()
  local last = unread - 1
  unread = math.max(0, unread - PAGE)
  for _, element in ipairs(redis.call('LRANGE', processing, unread, last)) do
    local id = id_of(element)
    claimed[id] = claimed[id] or {}
    table.insert(claimed[id], element)
  end
end

-- Take out a message that was claimed just now; nil if it is not there.
local function take_out(former)
  local id = id_of(former)
  while true do
    local same = claimed[id] or {}
    for place, element in ipairs(same) do
      if string.sub(element, 1, #former) == former then return table.remove(same, place) end
    end
    if unread == 0 then return nil end
    read_claimed()
  end
end

local function take_claimed(at)
  local element = take_out(ARGV[at + FORMER])
  if not element then return false end
  gone[#gone + 1] = element
  local group = ordering_key_of(element)
  if group then key_of(group).bound = nil end -- one that is ready passes on with none in flight
  put_in_flight(at, FIRST_TURN)
  return true
end

-- Take a message that waits, if it is the first of its line, others of its key are in flight before it, and the
-- limits let it go.
local limits = kept > 0 and limits_of(q, flow, buckets)
local function take_waiting(at)
  local former, again, line = ARGV[at + FORMER], ARGV[at + AGAIN], ARGV[at + LINE]
  local group, turn = string.sub(line, 1, GROUP), string.sub(line, GROUP + 1)
  local key = key_of(group)
  if key.before == '' and #key.taken == 0 then return false end
  local first = next_of(group, key, (#ARGV + 1 - at) / MOVES_STEP)
  if not first or string.sub(first, 1, #line + #former) ~= line .. former then return false end
  if key.bound and turn >= key.bound or limits and not limits.let_through(group, again) then return false end
  key.at, key.passed = key.at + 1, key.passed + 1
  left[#left + 1] = first
  note(q, 'claimed', again, consumer)
  put_in_flight(at, turn)
  return true
end

for at = MOVES, #ARGV, MOVES_STEP do
  local take = ARGV[at + LINE] == '' and take_claimed or take_waiting
  codes[#codes + 1] = (flies_already(at) or take(at)) and 'd' or 'n'
end
if #gone == holds then
  redis.call('DEL', processing)
else
  for _, element in ipairs(gone) do redis.call('LREM', processing, holds > JUST_CLAIMED and 1 or -1, element) end
end
note_held(q, slots, processing)
if #left > 0 then redis.call('ZREM', q.waiting, unpack(left)) end
if limits then limits.write() end
if #scored > 0 then
  redis.call('ZADD', received, unpack(scored))
  redis.call('HSET', receipts, unpack(written))
end
for group, key in pairs(keys) do
  if #key.taken > 0 then redis.call('HSET', q.active, group, ' ' .. key.before .. table.concat(key.taken)) end
  if key.bound then note_early(q, early, group) end
end
if #left > 0 then redis.call('HINCRBY', q.counters, 'claimed', #left) end
if attempt and #entries > 0 then
  if kept == 0 then redis.call('DEL', attempt) end
  redis.call('RPUSH', attempt, unpack(entries))
  redis.call('PEXPIRE', attempt, kept > 0 and kept or ATTEMPT_MS)
end
return {table.concat(codes), redis.call('ZCARD', received)}
