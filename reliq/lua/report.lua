-- report: store what a handler reports about its message, if its consumer still holds it.
--
-- KEYS  lease, report, processing
-- ARGV  tag, kept, name, place, fields...
--       tag: of the push of the message
--       kept: ms for which the report is
--       name: of the element, as for settle
--       place: where it should be, as for settle: if it is elsewhere, it is searched
--       fields: each with its value
-- Returns 1, or 0 if the lease is lost or the message is settled: nothing was stored
-- uses: now, held, full
-- names of the keys and arguments (tools/generate_scripts.py)
local lease, report, processing = KEYS[1], KEYS[2], KEYS[3]
local tag, kept, name, place = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local FIELDS = 5
-- end of the names
redis.call('STRLEN', lease) -- wrong types are refused here, before the first write
redis.call('HLEN', report)
redis.call('LLEN', processing)

if redis.call('EXISTS', lease) == 0 or not held_element(processing, name, place) then return 0 end
pass_when_full(report)
redis.call('HSET', report, 'tag', tag, 'at', now_ms(), unpack(ARGV, FIELDS))
redis.call('PEXPIRE', report, kept)
return 1
