-- batch_open: create the record of a batch.
--
-- KEYS  1 record  2 open batches  3 record of the parent, if it has one
-- ARGV  1 batch  2.. fields and values
-- Returns 1, also if this call was carried out before; 0: the parent is not open any more
-- uses: now
local batch, open, parent = KEYS[1], KEYS[2], KEYS[3]
redis.call('HLEN', batch) -- wrong types are refused here, before the first write
redis.call('ZCARD', open)
if redis.call('EXISTS', batch) == 1 then return 1 end
if parent and redis.call('HGET', parent, 'state') ~= 'open' then return 0 end
local now = now_ms()
redis.call('HSET', batch, 'state', 'open', 'opened', now, unpack(ARGV, 2))
redis.call('ZADD', open, now, ARGV[1])
if parent then redis.call('HINCRBY', parent, 'children', 1) end
return 1
