-- try: a worker starts a redelivered message; should it die now, only this one is charged.
--
-- KEYS  1 trying
-- ARGV  1 consumer  2 the message's tag
-- Returns 1, or 0 where the consumer keeps no marks, or has been taken back
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('PERSIST', KEYS[1]) -- it does nothing, but as a write it lets the next one pass when memory is full
redis.call('HSET', KEYS[1], ARGV[1], '-' .. ARGV[2])
return 1
