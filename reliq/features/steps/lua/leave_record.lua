-- leave_record: read the record of a message that a monitor takes to another partition. From now on a signal for the message is given
-- to its new home too: what is stored here does not go along any more.
--
-- KEYS  followed, waits
-- ARGV  id, kept: number
--       kept: ms for which that holds
-- Returns as recorded does
-- uses: now, records, arriving, reading
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, waits = KEYS[1], KEYS[2]
local id, kept = ARGV[1], tonumber(ARGV[2])
-- end of the names
redis.call('ZCARD', waits) -- wrong types are refused here, before the first write
local fields = record_fields(followed, id)
if #fields > 0 then redis.call('ZADD', waits, string.format('%.0f', now_ms() + kept), leaving(id)) end
return fields
