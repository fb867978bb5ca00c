-- cancel: remove a delayed message that has not been promoted.
--
-- KEYS  1-13 places  14 delayed  15 index
-- ARGV  1 id
-- Returns 1, or 0 if the message is not delayed
-- uses: now, element, bodies, index, rounds, lanes, partition, homes, follow, place
local q, delayed, index = places(1), KEYS[14], KEYS[15]
local element = index_take(delayed, index, ARGV[1])
if not element then return 0 end
leave_queue(q, element)
have_left(q, {element}, 'cancelled')
redis.call('HINCRBY', q.counters, 'cancelled', 1)
return 1
