-- batch_change: add queues to an open batch, or close it.
--
-- KEYS  1 record
-- ARGV  1.. fields and values
-- Returns 1; 0: the batch is not open any more, and nothing was changed
local batch = KEYS[1]
if redis.call('HGET', batch, 'state') ~= 'open' then return 0 end
redis.call('HSET', batch, unpack(ARGV))
return 1
