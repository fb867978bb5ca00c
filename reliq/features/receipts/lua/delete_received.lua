-- delete_received: delete messages in flight; they were handled.
--
-- KEYS  places, received, receipts
-- ARGV  late: flag, handles... [name, key_group]
--       late: also one whose time was over, as long as no other consumer has taken it
--       key_group: of the message's key, '' = none
-- Returns one letter for each: d = done, e = its time was over, and the message is ready, or in flight again; u = it is not
--         in flight
-- A message that is ready again is looked for by its id, at the ends of the ready lists and in the line of its key.
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, flights
-- names of the keys and arguments (tools/generate_scripts.py)
local received, receipts = KEYS[14], KEYS[15]
local late = ARGV[1] == '1'
local PLACES, HANDLES, HANDLES_STEP, NAME, KEY_GROUP = 1, 2, 2, 0, 1
-- end of the names
local LOOKS = 500 -- messages at each end of a list
local q = places(PLACES)
check_flights(received, receipts)
local now = now_ms()

-- Find a ready message; returns its list, its place there, and its element.
local function find_ready(id)
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
local function is_waiting(id, group)
  if group == '' then return false end
  local line = redis.call('ZRANGEBYLEX', q.waiting, '[' .. group, '(' .. group .. '\255', 'LIMIT', 0, LOOKS)
  for _, member in ipairs(line) do
    if id_of(element_in_line(member)) == id then return true end
  end
  return false
end

local codes, done, ready = {}, {}, {}
for at = HANDLES, #ARGV, HANDLES_STEP do
  local name = ARGV[at + NAME]
  local field, until_ms, later = find_flight(received, receipts, name)
  local code = 'u'
  if field and (until_ms > now and not later or until_ms <= now and late) then
    done[#done + 1] = land(received, receipts, field)
    code = 'd'
  elseif field then
    code = late and 'u' or 'e'
  else
    local list, place, element = find_ready(id_of(name))
    if list and late then -- its place stays, as that of a cancelled one
      redis.call('LSET', list, place, BLANK)
      redis.call('HINCRBY', q.counters, 'blanks', 1)
      ready[#ready + 1] = element
      code = 'd'
    elseif list or is_waiting(id_of(name), ARGV[at + KEY_GROUP]) then
      code = 'e'
    end
  end
  codes[#codes + 1] = code
end
finish_flights(q, done, 'acked')
for _, element in ipairs(ready) do leave_queue(q, element) end
have_left(q, ready, 'acked')
if #ready > 0 then redis.call('HINCRBY', q.counters, 'acked', #ready) end
return table.concat(codes)
