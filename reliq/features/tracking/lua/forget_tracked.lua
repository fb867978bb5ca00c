-- forget_tracked: delete the index of a queue that tracks its messages no more, and leave what other features have noted.
--
-- KEYS  config, followed
-- ARGV  cursor, limit
--       cursor: 0 = from the beginning
--       limit: fields to look at
-- Returns the cursor to go on with, 0 = it is done; nothing is deleted if the queue tracks its messages again
-- names of the keys and arguments (tools/generate_scripts.py)
local config, followed = KEYS[1], KEYS[2]
local cursor, limit = ARGV[1], ARGV[2]
-- end of the names
redis.call('HLEN', followed) -- a wrong type is refused here, before the first write
if redis.call('HEXISTS', config, 'track') == 1 then return 0 end
local following, fields = unpack(redis.call('HSCAN', followed, cursor, 'COUNT', limit))
for at = 1, #fields, 2 do
  if not string.find(fields[at], '^[ \n\t\v]') then redis.call('HDEL', followed, fields[at]) end
end
return tonumber(following)
