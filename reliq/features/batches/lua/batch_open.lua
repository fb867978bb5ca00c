-- batch_open: create the record of a batch.
--
-- KEYS  batch, open, parent?
--       batch: its record
--       open: the open batches
--       parent: the record of the parent, if it has one
-- ARGV  id, fields...
--       fields: each with its value
-- Returns 1, also if this call was carried out before; 0: the parent is not open any more
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local batch, open, parent = KEYS[1], KEYS[2], KEYS[3]
local id = ARGV[1]
local FIELDS = 2
-- end of the names
redis.call('HLEN', batch) -- wrong types are refused here, before the first write
redis.call('ZCARD', open)
if redis.call('EXISTS', batch) == 1 then return 1 end
if parent and redis.call('HGET', parent, 'state') ~= 'open' then return 0 end
local now = now_ms()
redis.call('HSET', batch, 'state', 'open', 'opened', now, unpack(ARGV, FIELDS))
redis.call('ZADD', open, now, id)
if parent then redis.call('HINCRBY', parent, 'children', 1) end
return 1
