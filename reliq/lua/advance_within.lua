-- advance_within: what else happens to a message that the monitor takes back in a transaction. The key of one that died is
-- released, and the next message of the key is ready; a queue that follows its messages notes it.
--
-- KEYS  1-13 places
-- ARGV  1 element  2 counter  3 '1' = it is dead
-- Returns 1. Does nothing for a message that does not hold its key, and in a queue that notes nothing.
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place
local q, element, counter, dead = places(1), ARGV[1], ARGV[2], ARGV[3] == '1'
if dead then
  has_died(q, element, counter)
  release_key(q, element)
else
  note(q, counter, element)
end
return 1
