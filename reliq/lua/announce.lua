-- announce: add a queue to the set of all queues, which monitors and dashboards read.
--
-- KEYS  queues
-- ARGV  queue
-- Returns 1 if the queue is new, else 0
-- names of the keys and arguments (tools/generate_scripts.py)
local queues = KEYS[1]
local queue = ARGV[1]
-- end of the names
if redis.call('SISMEMBER', queues, queue) == 1 then return 0 end
redis.call('SREM', queues, queue) -- a removal first: works when memory is full
return redis.call('SADD', queues, queue)
