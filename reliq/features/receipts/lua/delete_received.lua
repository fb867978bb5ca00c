-- delete_received: delete messages in flight; they were handled.
--
-- KEYS  places, received, receipts
-- ARGV  late: flag, names...
--       late: also one whose time was over, as long as no other consumer has taken it
-- Returns one letter for each: d = done, e = its time was over, u = it is not in flight
-- A message that is ready again is looked for by its id, at the ends of the ready lists.
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, flights
-- names of the keys and arguments (tools/generate_scripts.py)
local received, receipts = KEYS[14], KEYS[15]
local late = ARGV[1] == '1'
local PLACES, NAMES = 1, 2
-- end of the names
local LOOKS = 500 -- messages at each end of a list
local q = places(PLACES)
check_flights(received, receipts)
local now = now_ms()

-- Take a ready message out of its list: its place stays, as that of a cancelled one. Returns its element, or nil.
local function take_ready(id)
  for _, list in ipairs({q.messages, q.high, q.low}) do
    for _, from in ipairs({0, -LOOKS}) do
      for at, element in ipairs(redis.call('LRANGE', list, from, from + LOOKS - 1)) do
        if id_of(element) == id then
          local first = from < 0 and math.max(0, redis.call('LLEN', list) - LOOKS) or 0
          redis.call('LSET', list, first + at - 1, BLANK)
          redis.call('HINCRBY', q.counters, 'blanks', 1)
          return element
        end
      end
    end
  end
end

local codes, done, ready = {}, {}, {}
for at = NAMES, #ARGV do
  local name = ARGV[at]
  local field, until_ms, later = find_flight(received, receipts, name)
  local code = 'u'
  if field and not later and until_ms <= now and not late then
    code = 'e'
  elseif field and (not later or late and until_ms <= now) then
    done[#done + 1] = land(received, receipts, field)
    code = 'd'
  elseif not field and late then
    local element = take_ready(id_of(name))
    if element then
      ready[#ready + 1] = element
      code = 'd'
    end
  end
  codes[#codes + 1] = code
end
finish_flights(q, done, 'acked')
for _, element in ipairs(ready) do leave_queue(q, element) end
have_left(q, ready, 'acked')
if #ready > 0 then redis.call('HINCRBY', q.counters, 'acked', #ready) end
return table.concat(codes)
