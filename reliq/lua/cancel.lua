-- cancel: remove a delayed message that has not been promoted.
--
-- KEYS  1-11 places  12 delayed  13 index
-- ARGV  1 id
-- Returns 1, or 0 if the message is not delayed
-- uses: now, element, bodies, index, rounds, lanes, place
local q, delayed, index = places(1), KEYS[12], KEYS[13]
local element = index_take(delayed, index, ARGV[1])
if not element then return 0 end
leave_queue(q, element)
redis.call('HINCRBY', q.counters, 'cancelled', 1)
return 1
