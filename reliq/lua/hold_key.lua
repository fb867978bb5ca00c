-- hold_key: give out no message of one key for a time: what the handlers of these messages depend on has asked for it.
--
-- KEYS  config, buckets
-- ARGV  group, held_ms
--       group: digest of the key
--       held_ms: from now
-- Returns the ms at which it ends. A hold that ends later stays. The bucket of the key fills meanwhile.
-- uses: now, flow, key_holds, full
-- names of the keys and arguments (tools/generate_scripts.py)
local config, buckets = KEYS[1], KEYS[2]
local group, held_ms = ARGV[1], ARGV[2]
-- end of the names
redis.call('ZCARD', buckets) -- wrong types are refused here, before the first write
pass_when_full(config)
local until_ms = now_ms() + held_ms
until_ms = math.max(until_ms, tonumber(redis.call('ZSCORE', buckets, hold_of(group)) or 0))
note_key_full_at(buckets, hold_of(group), until_ms)
redis.call('HSET', config, 'limited', 1)
return until_ms
