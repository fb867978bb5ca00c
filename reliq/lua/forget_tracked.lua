-- forget_tracked: delete the index of a queue that tracks its messages no more, and leave the counts of open batches.
--
-- KEYS  1 config  2 followed
-- ARGV  1 cursor, 0 = from the beginning  2 fields to look at
-- Returns the cursor to go on with, 0 = it is done; nothing is deleted if the queue tracks its messages again
local config, followed = KEYS[1], KEYS[2]
redis.call('HLEN', followed) -- a wrong type is refused here, before the first write
if redis.call('HEXISTS', config, 'track') == 1 then return 0 end
if redis.call('HEXISTS', config, 'batched') == 0 then
  redis.call('UNLINK', followed)
  return 0
end
local cursor, fields = unpack(redis.call('HSCAN', followed, ARGV[1], 'COUNT', ARGV[2]))
for at = 1, #fields, 2 do
  if string.sub(fields[at], 1, 1) ~= ' ' then redis.call('HDEL', followed, fields[at]) end
end
return tonumber(cursor)
