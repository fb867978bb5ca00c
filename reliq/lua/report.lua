-- report: store what a handler reports about its message, if its consumer still holds it.
--
-- KEYS  lease, report, processing
-- ARGV  tag, sent, kept, name, place, fields...
--       tag: of the push of the message
--       sent: ms at which the message was sent: what is reported about another one with its id is deleted
--       kept: ms for which the report is
--       name: of the element, as for settle
--       place: where it should be, as for settle: if it is elsewhere, it is searched
--       fields: each with its value
-- Returns 1, or 0 if the lease is lost or the message is settled: nothing was stored
-- uses: now, held, full
-- names of the keys and arguments (tools/generate_scripts.py)
local lease, report, processing = KEYS[1], KEYS[2], KEYS[3]
local tag, sent, kept, name, place = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local FIELDS = 6
-- end of the names
redis.call('STRLEN', lease) -- wrong types are refused here, before the first write
local owner = redis.call('HGET', report, 'sent') -- none in a report of a former version
redis.call('LLEN', processing)

if redis.call('EXISTS', lease) == 0 or not held_element(processing, name, place) then return 0 end
pass_when_full(report)
if owner and owner ~= sent then redis.call('HDEL', report, 'fraction', 'text', 'state') end
redis.call('HSET', report, 'tag', tag, 'sent', sent, 'at', now_ms(), unpack(ARGV, FIELDS))
redis.call('PEXPIRE', report, kept)
return 1
