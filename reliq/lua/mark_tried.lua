-- mark_tried: mark the redelivered message that a worker starts: if the worker dies now, only this message is charged.
--
-- KEYS  1 trying
-- ARGV  1 consumer  2 the message's tag
-- Returns 1, or 0 if the consumer keeps no marks, or was reclaimed
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('PERSIST', KEYS[1]) -- no effect, but after this write the next one passes when memory is full
redis.call('HSET', KEYS[1], ARGV[1], '-' .. ARGV[2])
return 1
