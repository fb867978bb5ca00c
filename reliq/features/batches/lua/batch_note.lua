-- batch_note: note a step of the end of a batch, once.
--
-- KEYS  batch
--       batch: its record
-- ARGV  field, value
-- Returns the value that was noted first; nil: the batch has ended, and nothing was noted
-- uses: full
-- names of the keys and arguments (tools/generate_scripts.py)
local batch = KEYS[1]
local field, value = ARGV[1], ARGV[2]
-- end of the names
if redis.call('HEXISTS', batch, 'state') == 0 then return false end
pass_when_full(batch)
redis.call('HSETNX', batch, field, value)
return redis.call('HGET', batch, field)
