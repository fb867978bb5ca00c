-- tell: note that a message was cancelled while a consumer holds it. The consumer learns it with its next heartbeat.
--
-- KEYS  told, processing
-- ARGV  id, sent: number, kept
--       sent: ms at which it was sent, by the clock of its producer, which may be ahead: another message with this id is sent later
--       kept: ms for which the note is
-- Returns 1, or 0 if the consumer does not hold the message
-- uses: now, element, full
-- names of the keys and arguments (tools/generate_scripts.py)
local told, processing = KEYS[1], KEYS[2]
local id, sent, kept = ARGV[1], tonumber(ARGV[2]), ARGV[3]
-- end of the names
redis.call('HLEN', told) -- a wrong type is refused here, before the first write
for _, element in ipairs(redis.call('LRANGE', processing, 0, -1)) do
  if id_of(element) == id then
    pass_when_full(told)
    redis.call('HSET', told, id, string.format('%.0f', math.max(now_ms(), sent)))
    redis.call('PEXPIRE', told, kept)
    return 1
  end
end
return 0
