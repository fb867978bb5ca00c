-- lead: become the one consumer of a queue with limits that waits for messages, unless another one is. The others wait for
-- `freed`: a message wakes every consumer that waits for messages, and only one can take it.
--
-- KEYS  flow
-- ARGV  consumer, wait_ms
--       wait_ms: for how long it waits
-- Returns 1, or 0 if another one waits
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local flow = KEYS[1]
local consumer, wait_ms = ARGV[1], ARGV[2]
-- end of the names
local now = now_ms()
local waiter = redis.call('HMGET', flow, 'waiter', 'waiter_until')
if waiter[1] and waiter[1] ~= consumer and tonumber(waiter[2]) > now then return 0 end
redis.call('HSET', flow, 'waiter', consumer, 'waiter_until', string.format('%.0f', now + wait_ms))
return 1
