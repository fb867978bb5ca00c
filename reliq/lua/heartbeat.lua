-- heartbeat: renew a lease, if it is still there.
--
-- KEYS  1 lease
-- ARGV  1 lease ms
-- Returns 1, or 0 when the lease is gone: the monitor has taken everything back
-- uses: now
return redis.call('SET', KEYS[1], now_ms() + ARGV[1], 'XX') and 1 or 0
