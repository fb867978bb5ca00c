-- end_change: note that a change of the policy has reached all partitions, unless a later one has begun.
--
-- KEYS  config
-- ARGV  field, token
-- Returns 1, or 0 if a later one has begun
-- names of the keys and arguments (tools/generate_scripts.py)
local config = KEYS[1]
local field, token = ARGV[1], ARGV[2]
-- end of the names
if redis.call('HGET', config, field) ~= token then return 0 end
return redis.call('HDEL', config, field)
