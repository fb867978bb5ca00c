-- allow: take from what an API key may do. `rate` flows in every second, and no more than one second's worth is kept.
--
-- KEYS  1 allowance: the instant, in ms, at which it will be full again
-- ARGV  1 rate a second  2 how many are wanted
-- Returns {n taken, ms until there will be one}
-- uses: now
local interval, wanted = 1000 / ARGV[1], tonumber(ARGV[2])
local now = now_ms()
local kept = math.max(1000, interval) -- one at least
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local taken = math.min(wanted, math.floor((kept - (full - now)) / interval + 0.000001))
if taken < 1 then return {0, math.ceil(full + interval - kept - now)} end
full = full + taken * interval
redis.call('PERSIST', KEYS[1]) -- a write that a full Redis lets pass: then it lets the next one pass, too
redis.call('SET', KEYS[1], string.format('%.3f', full), 'PX', math.ceil(full - now) + 1000)
return {taken, 0}
