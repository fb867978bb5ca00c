-- sleep: store an entry of a message's record, and delay the message: its run is over, and nothing is counted against it.
--
-- KEYS  places, delayed, index, told, lease, processing, slots
-- ARGV  id, name, position, sent, nonce, number: number, entry, delay: number, again, counter, frees: flag, uncounted: flag
--       name ... number: as for record
--       entry: the ms at which the message is due follow it
--       delay: ms
--       again: the new element
--       counter: slept | retried
--       frees: other messages of its key go on meanwhile
--       uncounted: it was moved by BLMOVE, and is not yet counted as claimed
-- Returns as record does; 'cancelled': the message was cancelled meanwhile, and stays with its consumer
-- uses: now, element, bodies, index, rounds, lanes, partition, homes, follow, place, holders, held, records, entries, parting
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, index, told, lease, processing = KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18]
local id, name, position, sent, nonce, number = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local entry, delay, again, counter, frees = ARGV[7], tonumber(ARGV[8]), ARGV[9], ARGV[10], ARGV[11] == '1'
local uncounted = ARGV[12] == '1'
local PLACES, SLOTS = 1, 19
-- end of the names
local q, slots = places(PLACES), named_slots(SLOTS)
local now = now_ms()
redis.call('ZCARD', delayed) -- wrong types are refused here, before the first write
redis.call('HLEN', index)
redis.call('HLEN', q.config)
check_slots(q, slots)
if index_find(delayed, index, id) == again then return 'ok' end -- a call that was carried out before
local element = redis.call('STRLEN', lease) > 0 and held_element(processing, name, position)
if not element then return 'lost' end
local count, owner, _, names, head = read_head(q.followed, id)
if is_others(owner, sent) then return 'other' end
if number > count + 1 then return 'behind' end
if was_cancelled(told, id, sent) then return 'cancelled' end
part_from(q, slots, processing, element, frees, uncounted)
entry = entry .. string.format('%.0f', now + delay)
write_entry(q.followed, q.config, record_of(id), number, entry, sent, nonce, count, names, head)
index_add(delayed, index, now + delay, id, again)
note(q, counter, element, string.format('%.0f', delay))
redis.call('HINCRBY', q.counters, counter, 1)
return 'ok'
