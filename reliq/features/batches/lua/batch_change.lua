-- batch_change: add queues to an open batch, or close it.
--
-- KEYS  batch, open
--       batch: its record
--       open: the open batches
-- ARGV  id, fields...
--       fields: each with its value
-- Returns 1; 0: the batch is not open any more, and nothing was changed
-- uses: complete, full
-- names of the keys and arguments (tools/generate_scripts.py)
local batch, open = KEYS[1], KEYS[2]
local id = ARGV[1]
local FIELDS = 2
-- end of the names
redis.call('ZCARD', open) -- a wrong type is refused here, before the first write
if redis.call('HGET', batch, 'state') ~= 'open' then return 0 end
pass_when_full(batch)
redis.call('HSET', batch, unpack(ARGV, FIELDS))
note_complete(open, id, batch)
return 1
