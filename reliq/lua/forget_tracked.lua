-- forget_tracked: delete the index of a queue that tracks its messages no more.
--
-- KEYS  1 config  2 followed
-- ARGV  none
-- Returns 1, or 0 if it tracks them again, or has counts of open batches beside the index: these stay
local config, followed = KEYS[1], KEYS[2]
redis.call('HLEN', followed) -- a wrong type is refused here, before the first write
if redis.call('HEXISTS', config, 'track') == 1 or redis.call('HEXISTS', config, 'batched') == 1 then return 0 end
return redis.call('UNLINK', followed)
