-- batch_forget: delete a queue's counts of a batch that has ended.
--
-- KEYS  1 config  2 followed
-- ARGV  1 batch
-- Returns 1, or 0 if they were deleted before
local config, followed = KEYS[1], KEYS[2]
redis.call('HLEN', config) -- a wrong type is refused here, before the first write
if redis.call('HDEL', followed, ' ' .. ARGV[1]) == 0 then return 0 end
if redis.call('HINCRBY', config, 'batched', -1) <= 0 then redis.call('HDEL', config, 'batched') end
return 1
