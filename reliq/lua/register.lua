-- register: add a consumer and give it a lease, before it claims messages.
--
-- KEYS  1 consumers  2 lease  3 trying
-- ARGV  1 consumer  2 lease ms  3 '1' = it marks the redelivered message that it is running
-- Returns 1
-- uses: now
redis.call('SCARD', KEYS[1]) -- wrong types are refused here, before the first write
redis.call('STRLEN', KEYS[2])
redis.call('HLEN', KEYS[3])
redis.call('PERSIST', KEYS[2]) -- no effect, but after this write the next ones pass when memory is full
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], now_ms() + ARGV[2])
if ARGV[3] == '1' then redis.call('HSET', KEYS[3], ARGV[1], '-') end
return 1
