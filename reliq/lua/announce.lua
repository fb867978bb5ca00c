-- announce: add a queue to the set of all queues, which monitors and dashboards read.
--
-- KEYS  1 queues
-- ARGV  1 queue
-- Returns 1 if the queue is new, else 0
if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 1 then return 0 end
redis.call('SREM', KEYS[1], ARGV[1]) -- a removal first: works when memory is full
return redis.call('SADD', KEYS[1], ARGV[1])
