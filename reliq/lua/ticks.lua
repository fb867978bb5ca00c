-- ticks: find the schedules that are due, and those that will be soon.
--
-- KEYS  ticks, of each queue; on a cluster, of one queue
-- ARGV  1 ms to look ahead  2 most schedules of a queue that are due  3 most of the others  4.. for each queue: ms up to
--       which the caller has looked ahead before
-- Returns {now, for each queue: {{name, due, ... of those that are due}, {name, due, ... of those after that, in order}}}
-- uses: now
local now, ahead = now_ms(), ARGV[1]

local function between(ticks, first, last, most)
  return redis.call('ZRANGEBYSCORE', ticks, first, last, 'WITHSCORES', 'LIMIT', 0, most)
end

local answer, latest = {now}, string.format('%.0f', now + ahead)
for place, ticks in ipairs(KEYS) do
  local seen = math.max(now, tonumber(ARGV[3 + place]))
  answer[#answer + 1] = {
    between(ticks, '-inf', string.format('%.0f', now), ARGV[2]),
    between(ticks, string.format('(%.0f', seen), latest, ARGV[3]),
  }
end
return answer
