-- record: store an entry of a message's record, if its consumer still holds the message.
--
-- KEYS  followed, config, lease, processing
-- ARGV  id, name, position, sent, nonce, number: number, entry
--       name, position: of the element, as name and place for report
--       sent: ms at which the message was sent: another message with its id has a record of its own
--       number: of the entry: the next one, or one that it replaces; none replaces what has ended, as a call that arrives late would
-- Returns 'ok'; 'lost': the consumer does not hold the message; 'other': the record is another message's, or has another entry;
--         'behind': it has fewer entries than the caller has stored, as Redis was restarted with an older state. Then nothing was stored
-- uses: held, records, entries, full
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, config, lease, processing = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, name, position, sent, nonce, number = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local entry = ARGV[7]
-- end of the names
if redis.call('STRLEN', lease) == 0 or not held_element(processing, name, position) then return 'lost' end
local count, owner, _, names, head = read_head(followed, id)
if is_others(owner, sent) then return 'other' end
if number > count + 1 then return 'behind' end
local field = record_of(id)
local former = number <= count and redis.call('HGET', followed, field .. '\n' .. number)
if former and string.find(former, '^[sfz]') then return former == entry and 'ok' or 'other' end
if not head then redis.call('HLEN', config) end -- a wrong type is refused here, before the first write
pass_when_full(followed)
write_entry(followed, config, field, number, entry, sent, nonce, count, names, head)
return 'ok'
