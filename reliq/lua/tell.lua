-- tell: note that a message was cancelled while a consumer holds it. The consumer learns it with its next heartbeat.
--
-- KEYS  1 told  2 processing
-- ARGV  1 id  2 ms for which the note is kept
-- Returns 1, or 0 if the consumer does not hold the message
-- uses: now, element
local told, processing, id = KEYS[1], KEYS[2], ARGV[1]
redis.call('HLEN', told) -- a wrong type is refused here, before the first write
for _, element in ipairs(redis.call('LRANGE', processing, 0, -1)) do
  if id_of(element) == id then
    redis.call('HSET', told, id, now_ms())
    redis.call('PEXPIRE', told, ARGV[2])
    return 1
  end
end
return 0
