-- cancel: remove a delayed message that has not been promoted.
--
-- KEYS  1-8 places  9 delayed  10 index
-- ARGV  1 id
-- Returns 1, or 0: it is not delayed (any more)
-- uses: index, place
local q, delayed, index = places(1), KEYS[9], KEYS[10]
local element = unfile(delayed, index, ARGV[1])
if not element then return 0 end
gone(q, element)
redis.call('HINCRBY', q.counters, 'cancelled', 1)
return 1
