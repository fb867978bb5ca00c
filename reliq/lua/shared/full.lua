-- Let a script write while memory is full: Redis refuses what may need memory only until the script has written something. This
-- changes nothing in the hash, and needs no memory.
local function pass_when_full(hash)
  redis.call('HDEL', hash, '')
end
