-- announce: enter a queue into the set of all queues. Monitors and dashboards look there.
--
-- KEYS  1 queues
-- ARGV  1 queue
-- Returns 1 when it was not there before, else 0
if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 1 then return 0 end
redis.call('SREM', KEYS[1], ARGV[1]) -- a removal first: then it passes when memory is full
return redis.call('SADD', KEYS[1], ARGV[1])
