-- put_record: store a part of the record of a message that a monitor is about to enqueue here, from another partition.
--
-- KEYS  followed, config, waits, brought
-- ARGV  id, head, kept: number, fields...
--       brought: exists once the message has entered: then its record is its own, and nothing is stored
--       head: of the record
--       kept: ms for which the record stays if the message does not come
--       fields: each with its value
-- Returns 1, or 0: the message is here, or another one with its id
-- uses: now, records, entries, arriving
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, config, waits, brought = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, head, kept = ARGV[1], ARGV[2], tonumber(ARGV[3])
local FIELDS = 4
-- end of the names
if redis.call('GET', brought) then return 0 end
local count, sent, nonce, names = string.match(head, '^(%d+) (%d+) (%S+)(.*)$')
local _, _, _, known, there = read_head(followed, id)
local is_early = is_expected(waits, id)
if there and there ~= ENDED and not is_early then return 0 end
for name in string.gmatch(known, '\n([^\n]+)') do
  if not string.find(names .. '\n', '\n' .. name .. '\n', 1, true) then names = names .. '\n' .. name end
end
if not there then redis.call('HLEN', config) end -- a wrong type is refused here, before the first write
redis.call('HSET', followed, record_of(id), head_text(count, sent, nonce, names), unpack(ARGV, FIELDS))
if not there then redis.call('HINCRBY', config, 'recorded', 1) end
redis.call('ZREM', waits, record_of(id))
redis.call('ZADD', waits, string.format('%.0f', now_ms() + kept), arriving(id))
return 1
