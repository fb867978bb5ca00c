-- heartbeat: renew a lease, if it is still there.
--
-- KEYS  1 lease
-- ARGV  1 lease ms
-- Returns 1, or 0 when the lease is gone: the monitor has taken everything back
-- uses: now, renew
redis.call('STRLEN', KEYS[1]) -- a wrong type is refused here, before the first write
return renew(KEYS[1], now_ms() + ARGV[1]) and 1 or 0
