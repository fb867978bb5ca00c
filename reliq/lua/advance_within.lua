-- advance_within: release the key of a message that died in a transaction of the monitor; the next message of the key is ready.
--
-- KEYS  1-11 places
-- ARGV  1 element
-- Returns 1. Does nothing for a message that does not hold its key.
-- uses: now, element, bodies, rounds, lanes, place
release_key(places(1), ARGV[1])
return 1
