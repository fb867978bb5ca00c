-- hold_key: give out no message of one key for a time: what the handlers of these messages depend on has asked for it.
--
-- KEYS  config, buckets
-- ARGV  group, held_ms
--       group: digest of the key
--       held_ms: from now
-- Returns the ms at which it ends. A hold that ends later stays. The key's bucket is empty until then.
-- uses: now, flow, full
-- names of the keys and arguments (tools/generate_scripts.py)
local config, buckets = KEYS[1], KEYS[2]
local group, held_ms = ARGV[1], ARGV[2]
-- end of the names
redis.call('ZCARD', buckets) -- wrong types are refused here, before the first write
local policy = redis.call('HMGET', config, 'key_rate')
pass_when_full(config)
local until_ms = now_ms() + held_ms
local bucket = bucket_of(policy[1])
local full_at = until_ms + (bucket and (bucket.most - 1) * bucket.each or 0) -- so that there is one token then
full_at = math.max(full_at, tonumber(redis.call('ZSCORE', buckets, group) or 0))
note_key_full_at(buckets, group, full_at)
redis.call('HSET', config, 'limited', 1)
return until_ms
