-- due: find the queues with delayed messages that are due, and the time until the next message of the others is due.
--
-- KEYS  delayed...
--       delayed: of each queue; on a cluster, of one queue
-- ARGV  ahead
--       ahead: ms to look ahead: later messages, which may be large, are not read
-- Returns {ms until the next is due, or -1 = not within the look-ahead, positions in KEYS of queues with due messages ...}
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local ahead = ARGV[1]
-- end of the names
local now, answer = now_ms(), {-1}
local latest = string.format('%.0f', now + ahead)
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
