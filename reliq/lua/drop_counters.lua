-- drop_counters: delete the counters of a partition that takes no messages: the first one has them. A late call finds others there,
-- if the partition was used since, and deletes nothing.
--
-- KEYS  config, counters
-- ARGV  counts...
--       counts: names of the counters, each with its value
-- Returns how many keys were deleted
-- names of the keys and arguments (tools/generate_scripts.py)
local config, counters = KEYS[1], KEYS[2]
local COUNTS = 1
-- end of the names
local retired = redis.call('HGET', config, 'retired')
if redis.call('HLEN', counters) ~= #ARGV / 2 or retired ~= '1' then return 0 end
for i = COUNTS, #ARGV, 2 do
  if redis.call('HGET', counters, ARGV[i]) ~= ARGV[i + 1] then return 0 end
end
return redis.call('UNLINK', counters)
