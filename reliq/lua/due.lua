-- due: which of these queues have delayed messages that are due, and how soon the next one of the others is.
--
-- KEYS  delayed, of each queue; on a cluster, of one
-- ARGV  1 ms to look ahead: a message that is due later is not even read, it may be large
-- Returns {ms until the next is due or -1 = not that soon, the places of those with something due, from 1 ...}
-- uses: now
local now, answer = now_ms(), {-1}
local latest = string.format('%.0f', now + ARGV[1])
for place, delayed in ipairs(KEYS) do
  local first = redis.call('ZRANGEBYSCORE', delayed, '-inf', latest, 'WITHSCORES', 'LIMIT', 0, 1)
  if first[1] then
    local wait = math.floor(first[2]) - now
    if wait <= 0 then
      answer[#answer + 1] = place
    elseif answer[1] < 0 or wait < answer[1] then
      answer[1] = wait
    end
  end
end
return answer
