-- batch_forget: delete a queue's counts of a batch that has ended.
--
-- KEYS  config, followed
-- ARGV  batch
-- Returns 1, or 0 if they were deleted before
-- names of the keys and arguments (tools/generate_scripts.py)
local config, followed = KEYS[1], KEYS[2]
local batch = ARGV[1]
-- end of the names
redis.call('HLEN', config) -- a wrong type is refused here, before the first write
if redis.call('HDEL', followed, ' ' .. batch) == 0 then return 0 end
if redis.call('HINCRBY', config, 'batched', -1) <= 0 then redis.call('HDEL', config, 'batched') end
return 1
