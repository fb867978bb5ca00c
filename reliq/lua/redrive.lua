-- redrive: move dead letters back into the queue, each only if it is still there.
--
-- KEYS  1 messages  2 dead  3 counters  4 index
-- ARGV  for each letter: element, id, new element
-- Returns one number a letter: 1 = redriven, 0 = it was gone
-- uses: index
local messages, dead, counters, index = unpack(KEYS)
redis.call('LLEN', messages) -- a wrong type is refused here, before the first write
local answer, redriven = {}, 0
for at = 1, #ARGV, 3 do
  local gone = redis.call('ZREM', dead, ARGV[at])
  if gone == 1 then
    redis.call('LPUSH', messages, ARGV[at + 2])
    redis.call('HDEL', index, ARGV[at + 1])
    redriven = redriven + 1
  end
  answer[#answer + 1] = gone
end
if redriven > 0 then redis.call('HINCRBY', counters, 'redriven', redriven) end
return answer
