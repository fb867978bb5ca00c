-- report: store what a handler reports about its message, if its consumer still has a lease.
--
-- KEYS  1 lease  2 report
-- ARGV  1 tag of the push of the message  2 ms for which the report is kept  3.. fields and values
-- Returns 1, or 0 if the lease is lost: nothing was stored
-- uses: now
local lease, report = KEYS[1], KEYS[2]
redis.call('STRLEN', lease) -- wrong types are refused here, before the first write
redis.call('HLEN', report)
if redis.call('EXISTS', lease) == 0 then return 0 end
redis.call('HSET', report, 'tag', ARGV[1], 'at', now_ms(), unpack(ARGV, 3))
redis.call('PEXPIRE', report, ARGV[2])
return 1
