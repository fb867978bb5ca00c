-- charge: replace what a run has taken of the rates of its queue and its key by what it has cost.
--
-- KEYS  config, flow, buckets, charged
-- ARGV  reserved, actual, group, kept_ms
--       reserved: the cost of the message; what the run was charged before counts instead
--       actual: what all of the run has cost so far
--       group: of the key, or empty
--       kept_ms: for how long that is known after the latest charge
-- Returns 1. A repeated call changes nothing
-- uses: flow, full
-- names of the keys and arguments (tools/generate_scripts.py)
local config, flow, buckets, charged = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local reserved, actual, group, kept_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- end of the names
local now = exact_now_ms()
redis.call('HLEN', flow) -- wrong types are refused here, before the first write
redis.call('ZCARD', buckets)
local limits = redis.call('HMGET', config, 'rate', 'burst', 'key_rate')
local more = actual - (redis.call('GET', charged) or reserved)
pass_when_full(flow)
redis.call('SET', charged, actual, 'PX', kept_ms)

local bucket, key_bucket = bucket_of(limits[1], limits[2]), bucket_of(limits[3])
if bucket and more ~= 0 then
  local full_at = tonumber(redis.call('HGET', flow, 'full_at') or nil)
  note_full_at(flow, corrected(bucket, full_at, now, more))
end
if key_bucket and group ~= '' and more ~= 0 then
  local full_at = tonumber(redis.call('ZSCORE', buckets, group) or nil)
  note_key_full_at(buckets, group, corrected(key_bucket, full_at, now, more))
end
return 1
