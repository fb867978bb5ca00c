-- batch_end: delete the record of a batch that has ended; its parent waits for one batch less.
--
-- KEYS  batch, open, parent?
--       batch: its record
--       open: the open batches
--       parent: the record of the parent, if it has one
-- ARGV  id, handled, dead, cancelled
--       handled, dead, cancelled: how many messages of the batch, and of the batches in it, ended in that way
-- Returns 1, or 0 if it was deleted before, by another monitor too
-- uses: complete
-- names of the keys and arguments (tools/generate_scripts.py)
local batch, open, parent = KEYS[1], KEYS[2], KEYS[3]
local id, handled, dead, cancelled = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- end of the names
if parent then redis.call('HLEN', parent) end -- wrong types are refused here, before the first write
local state, parent_id = unpack(redis.call('HMGET', batch, 'state', 'parent'))
redis.call('ZREM', open, id)
redis.call('DEL', batch)
if not state then return 0 end -- at most what an earlier version has written after the end
if parent and redis.call('EXISTS', parent) == 1 then
  redis.call('HINCRBY', parent, 'children', -1)
  redis.call('HINCRBY', parent, 'children_handled', handled)
  redis.call('HINCRBY', parent, 'children_dead', dead)
  redis.call('HINCRBY', parent, 'children_cancelled', cancelled)
  note_complete(open, parent_id, parent)
end
return 1
