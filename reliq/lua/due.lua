-- due: find in how many ms the next delayed message of each queue is due.
--
-- KEYS  delayed...
--       delayed: of each queue; on a cluster, of one queue
-- ARGV  ahead
--       ahead: ms to look ahead: later messages, which may be large, are not read
-- Returns {ms until the next is due: 0 = now, -1 = not within the look-ahead; for each key ...}
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local ahead = ARGV[1]
-- end of the names
local now, answer = now_ms(), {}
local latest = string.format('%.0f', now + ahead)
for place, delayed in ipairs(KEYS) do
  local first = redis.call('ZRANGEBYSCORE', delayed, '-inf', latest, 'WITHSCORES', 'LIMIT', 0, 1)
  answer[place] = first[1] and math.max(0, math.floor(first[2]) - now) or -1
end
return answer
