-- hold: give out no message of the queue for a time: what its handlers depend on has asked for it.
--
-- KEYS  config, flow
-- ARGV  held_ms
--       held_ms: from now
-- Returns the ms at which it ends. A hold that ends later stays.
-- uses: now, full
-- names of the keys and arguments (tools/generate_scripts.py)
local config, flow = KEYS[1], KEYS[2]
local held_ms = ARGV[1]
-- end of the names
redis.call('HLEN', config)
redis.call('HLEN', flow) -- wrong types are refused here, before the first write
pass_when_full(flow)
local until_ms = math.max(now_ms() + held_ms, tonumber(redis.call('HGET', flow, 'held_until') or 0))
redis.call('HSET', flow, 'held_until', string.format('%.0f', until_ms))
redis.call('HSET', config, 'limited', 1)
return until_ms
