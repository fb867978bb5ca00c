-- advance: a message that holds its key has died in a transaction of the monitor: the next one of the key is ready.
--
-- KEYS  1-8 places
-- ARGV  1 group  2 id
-- Returns 1. Does nothing for a message that does not hold its key.
-- uses: index, place
advance(places(1), ARGV[1], ARGV[2])
return 1
