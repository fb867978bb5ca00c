-- withdraw: remove messages that have their home in another partition of the queue, and are refused there.
--
-- KEYS  places, call?
--       call: has the answer of a call that is repeated
-- ARGV  counter, members...
--       counter: purged | cancelled
--       members: of `waiting`
-- Returns how many were still here
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, strays, calls
-- names of the keys and arguments (tools/generate_scripts.py)
local call = KEYS[14]
local counter = ARGV[1]
local PLACES, MEMBERS = 1, 2
-- end of the names
local q = places(PLACES)
local before = answer_before(call)
if before then return tonumber(before) end
local gone = take_strays(q, MEMBERS)
have_left(q, gone, counter)
if #gone > 0 then
  redis.call('HINCRBY', q.counters, counter, #gone)
  answer_with(call, #gone)
end
return #gone
