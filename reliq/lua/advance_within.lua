-- advance_within: what else happens to a message that the monitor takes back in a transaction. The key of one that died is
-- released, and the next message of the key is ready; a queue that follows its messages notes it.
--
-- KEYS  places
-- ARGV  element, counter, dead: flag
--       dead: it is a dead letter now
-- Returns 1. Does nothing for a message that does not hold its key, and in a queue that notes nothing.
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place
-- names of the keys and arguments (tools/generate_scripts.py)
local element, counter, dead = ARGV[1], ARGV[2], ARGV[3] == '1'
local PLACES = 1
-- end of the names
local q = places(PLACES)
if dead then
  has_died(q, element, counter)
  release_key(q, element)
else
  note(q, counter, element)
end
return 1
