-- allow: take requests from an API key's rate limit: a token bucket that holds one second's worth of requests.
--
-- KEYS  allowance
--       allowance: the time in ms at which the bucket is full again
-- ARGV  rate: number, wanted: number
--       rate: requests per second
-- Returns {number granted, ms until one is available}
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local allowance = KEYS[1]
local rate, wanted = tonumber(ARGV[1]), tonumber(ARGV[2])
-- end of the names
local interval = 1000 / rate
local now = now_ms()
local kept = math.max(1000, interval) -- at least one request
local full = math.max(tonumber(redis.call('GET', allowance) or 0), now)
local taken = math.min(wanted, math.floor((kept - (full - now)) / interval + 0.000001))
if taken < 1 then return {0, math.ceil(full + interval - kept - now)} end
full = full + taken * interval
redis.call('PERSIST', allowance) -- a write that a full Redis accepts; after it the SET passes too
redis.call('SET', allowance, string.format('%.3f', full), 'PX', math.ceil(full - now) + 1000)
return {taken, 0}
