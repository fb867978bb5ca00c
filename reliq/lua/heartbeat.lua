-- heartbeat: renew a lease if it still exists.
--
-- KEYS  1 lease: only this one, so that Redis refuses no heartbeat while it moves a cluster slot
-- ARGV  1 lease ms
-- Returns 1, or 0 if the lease does not exist: the monitor has taken the consumer's messages back
-- uses: now, renew
redis.call('STRLEN', KEYS[1]) -- a wrong type is refused here, before the first write
return renew(KEYS[1], now_ms() + ARGV[1]) and 1 or 0
