-- drop_counters: delete the counters of a partition that takes no messages, which the first one has, and the state of
-- its limits. A late call finds other counters there, if the partition was used since, and deletes nothing.
--
-- KEYS  config, counters, flow
-- ARGV  counts... [name, value]
-- Returns how many keys were deleted
-- names of the keys and arguments (tools/generate_scripts.py)
local config, counters, flow = KEYS[1], KEYS[2], KEYS[3]
local COUNTS, COUNTS_STEP, NAME, VALUE = 1, 2, 0, 1
-- end of the names
redis.call('HLEN', flow) -- a wrong type is refused here, before the first write
local retired = redis.call('HGET', config, 'retired')
if redis.call('HLEN', counters) ~= #ARGV / COUNTS_STEP or retired ~= '1' then return 0 end
for at = COUNTS, #ARGV, COUNTS_STEP do
  if redis.call('HGET', counters, ARGV[at + NAME]) ~= ARGV[at + VALUE] then return 0 end
end
return redis.call('UNLINK', counters, flow)
