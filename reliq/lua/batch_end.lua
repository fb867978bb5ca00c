-- batch_end: delete the record of a batch that has ended; its parent waits for one batch less.
--
-- KEYS  1 record  2 open batches  3 record of the parent, if it has one
-- ARGV  1 batch  2.. how many messages of the batch, and of those in it, were handled, have died, were cancelled
-- Returns 1, or 0 if it was deleted before
local batch, open, parent = KEYS[1], KEYS[2], KEYS[3]
redis.call('HLEN', batch) -- wrong types are refused here, before the first write
if parent then redis.call('HLEN', parent) end
redis.call('ZREM', open, ARGV[1])
if redis.call('DEL', batch) == 0 then return 0 end
if parent and redis.call('EXISTS', parent) == 1 then
  redis.call('HINCRBY', parent, 'children', -1)
  for place, count in ipairs({'children_handled', 'children_dead', 'children_cancelled'}) do
    redis.call('HINCRBY', parent, count, ARGV[1 + place])
  end
end
return 1
