-- remove_parked: delete parked messages, of a purge or by a cancellation.
--
-- KEYS  places, parked, waits, call?
--       call: has the answer of a call that is repeated
-- ARGV  counter, ids...
--       counter: purged | cancelled
-- Returns how many were there
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, calls, records, timeouts, unparking
-- names of the keys and arguments (tools/generate_scripts.py)
local parked, waits, call = KEYS[14], KEYS[15], KEYS[16]
local counter = ARGV[1]
local PLACES, IDS = 1, 2
-- end of the names
make_parts()
local q = places(PLACES)
local before = answer_before(call)
if before then return tonumber(before) end
redis.call('ZCARD', waits) -- a wrong type is refused here, before the first write
local removed = {}
for _, id in ipairs({unpack(ARGV, IDS)}) do
  local signal, element, at = parked_message(parked, id)
  if signal then
    unpark(parked, waits, id, at)
    leave_queue(q, element)
    removed[#removed + 1] = element
  end
end
have_left(q, removed, counter)
for _, element in ipairs(removed) do remember_end(q, element) end
if #removed == 0 then return 0 end
redis.call('HINCRBY', q.counters, counter, #removed)
return answer_with(call, #removed)
