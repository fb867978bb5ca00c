-- drop_counters: delete the counters of a partition that takes no messages: the first one has them.
--
-- KEYS  config, counters
-- ARGV  none
-- Returns how many keys were deleted
-- names of the keys and arguments (tools/generate_scripts.py)
local config, counters = KEYS[1], KEYS[2]
-- end of the names
redis.call('HLEN', counters) -- a wrong type is refused here, before the first write
if redis.call('HGET', config, 'retired') ~= '1' then return 0 end
return redis.call('UNLINK', counters)
