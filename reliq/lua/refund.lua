-- refund: give back what a claim has taken of the rates of the queue and of keys for messages that were not started.
--
-- KEYS  config, flow, buckets
-- ARGV  messages... [group, cost]
--       group: of its key, or empty
-- Returns 1. A repeated call gives it back twice, but no bucket gets fuller than full
-- uses: flow
-- names of the keys and arguments (tools/generate_scripts.py)
local config, flow, buckets = KEYS[1], KEYS[2], KEYS[3]
local MESSAGES, MESSAGES_STEP, GROUP, COST = 1, 2, 0, 1
-- end of the names
redis.call('HLEN', flow) -- wrong types are refused here, before the first write
redis.call('ZCARD', buckets)
redis.call('PERSIST', flow) -- no effect, but after this write the next ones pass when memory is full
local limits = redis.call('HMGET', config, 'rate', 'burst', 'key_rate')
local bucket, key_bucket = bucket_of(limits[1], limits[2]), bucket_of(limits[3])
local now = exact_now_ms()

local every = 0
for at = MESSAGES, #ARGV, MESSAGES_STEP do
  local group, cost = ARGV[at + GROUP], tonumber(ARGV[at + COST])
  local full_at = key_bucket and group ~= '' and tonumber(redis.call('ZSCORE', buckets, group) or nil)
  local is_held = full_at and full_at - now > key_bucket.most * key_bucket.each + 1 -- for longer than its tokens need
  if full_at and not is_held then
    redis.call('ZADD', buckets, string.format('%.6f', unspent(key_bucket, full_at, now, cost)), group)
  end
  every = every + cost
end
local full_at = bucket and tonumber(redis.call('HGET', flow, 'full_at') or nil)
if full_at then redis.call('HSET', flow, 'full_at', string.format('%.6f', unspent(bucket, full_at, now, every))) end
return 1
