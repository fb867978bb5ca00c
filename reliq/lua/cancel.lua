-- cancel: remove a delayed message that has not been promoted.
--
-- KEYS  places, delayed, index, call?
--       call: has the answer of a call that is repeated
-- ARGV  id
-- Returns 1, or 0 if the message is not delayed
-- uses: now, element, bodies, index, rounds, lanes, partition, homes, follow, place, calls
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, index, call = KEYS[14], KEYS[15], KEYS[16]
local id = ARGV[1]
local PLACES = 1
-- end of the names
local q = places(PLACES)
if answer_before(call) then return 1 end
local element = index_take(delayed, index, id)
if not element then return 0 end
leave_queue(q, element)
have_left(q, {element}, 'cancelled')
redis.call('HINCRBY', q.counters, 'cancelled', 1)
answer_with(call, 1)
return 1
