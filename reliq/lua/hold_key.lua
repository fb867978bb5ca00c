-- hold_key: give out no message of one key for a time: what the handlers of these messages depend on has asked for it.
--
-- KEYS  1 config  2 buckets
-- ARGV  1 digest of the key  2 ms from now
-- Returns the ms at which it ends. A hold that ends later stays. The key's bucket is empty until then.
-- uses: now, flow
local config, buckets, group = KEYS[1], KEYS[2], ARGV[1]
redis.call('ZCARD', buckets) -- wrong types are refused here, before the first write
local policy = redis.call('HMGET', config, 'key_rate')
redis.call('PERSIST', buckets) -- no effect, but after this write the next ones pass when memory is full
local until_ms = now_ms() + ARGV[2]
local bucket = bucket_of(policy[1])
local full_at = until_ms + (bucket and (bucket.most - 1) * bucket.each or 0) -- so that there is one token then
full_at = math.max(full_at, tonumber(redis.call('ZSCORE', buckets, group) or 0))
redis.call('ZADD', buckets, string.format('%.6f', full_at), group)
redis.call('HSET', config, 'limited', 1)
return until_ms
