-- flow_bury: make a message a dead letter that waits for one that is gone.
--
-- KEYS  places, delayed, dead, index
-- ARGV  id, element, again, counter
--       again: the new element
-- Returns 1, or 0 if it does not wait any more
-- uses: now, element, bodies, index, letters, rounds, lanes, partition, homes, follow, place, flow_fields
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, dead, index = KEYS[14], KEYS[15], KEYS[16]
local id, element, again, counter = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local PLACES = 1
-- end of the names
make_parts()
local q = places(PLACES)
for _, zset in ipairs({delayed, dead}) do redis.call('ZCARD', zset) end -- wrong types are refused here, before the first write
for _, hash in ipairs({index, q.followed}) do redis.call('HLEN', hash) end
local record = redis.call('HGET', q.followed, waits_field(id))
local found = record and (take_from_flow(q, record) or index_take(delayed, index, id))
if not found then return 0 end
redis.call('HDEL', q.followed, waits_field(id))
count_flowing(q, -1)
index_add(dead, index, now_ms(), letter_field(id), found == element and again or found)
redis.call('HINCRBY', q.counters, 'dead_lettered', 1)
redis.call('HINCRBY', q.counters, counter, 1)
has_died(q, found, counter)
release_key(q, found)
return 1
