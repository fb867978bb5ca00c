-- cancel: remove a delayed message that has not been promoted.
--
-- KEYS  1 delayed  2 counters  3 index
-- ARGV  1 id
-- Returns 1, or 0: it is not delayed (any more)
-- uses: index
local score = redis.call('HGET', KEYS[3], ARGV[1])
if not score then return 0 end
for _, element in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], score, score)) do
  if id_of(element) == ARGV[1] then
    redis.call('ZREM', KEYS[1], element)
    redis.call('HDEL', KEYS[3], ARGV[1])
    redis.call('HINCRBY', KEYS[2], 'cancelled', 1)
    return 1
  end
end
return 0
