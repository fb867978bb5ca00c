-- allow: take requests from an API key's rate limit: a token bucket that holds one second's worth of requests.
--
-- KEYS  1 allowance: the time in ms at which the bucket is full again
-- ARGV  1 requests per second  2 number wanted
-- Returns {number granted, ms until one is available}
-- uses: now
local interval, wanted = 1000 / ARGV[1], tonumber(ARGV[2])
local now = now_ms()
local kept = math.max(1000, interval) -- at least one request
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local taken = math.min(wanted, math.floor((kept - (full - now)) / interval + 0.000001))
if taken < 1 then return {0, math.ceil(full + interval - kept - now)} end
full = full + taken * interval
redis.call('PERSIST', KEYS[1]) -- a write that a full Redis accepts; after it the SET passes too
redis.call('SET', KEYS[1], string.format('%.3f', full), 'PX', math.ceil(full - now) + 1000)
return {taken, 0}
