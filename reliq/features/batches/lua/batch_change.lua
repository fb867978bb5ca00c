-- batch_change: add queues to an open batch, or close it.
--
-- KEYS  batch
-- ARGV  fields...
--       fields: each with its value
-- Returns 1; 0: the batch is not open any more, and nothing was changed
-- names of the keys and arguments (tools/generate_scripts.py)
local batch = KEYS[1]
local FIELDS = 1
-- end of the names
if redis.call('HGET', batch, 'state') ~= 'open' then return 0 end
redis.call('HSET', batch, unpack(ARGV, FIELDS))
return 1
