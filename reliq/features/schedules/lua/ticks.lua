-- ticks: find the schedules that are due, and those that will be soon.
--
-- KEYS  ticks...
--       ticks: of each queue; on a cluster, of one queue
-- ARGV  ahead, most_due, most_soon, seen...
--       ahead: ms to look ahead
--       most_due: schedules of a queue that are due; most_soon: of the others
--       seen: for each queue, ms up to which the caller has looked ahead before
-- Returns {now, for each queue: {{name, due, ... of those that are due}, {name, due, ... of those after that, in order}}}
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local ahead, most_due, most_soon = ARGV[1], ARGV[2], ARGV[3]
local SEEN = 4
-- end of the names
local now = now_ms()

local function between(ticks, first, last, most)
  return redis.call('ZRANGEBYSCORE', ticks, first, last, 'WITHSCORES', 'LIMIT', 0, most)
end

local answer, latest = {now}, string.format('%.0f', now + ahead)
for place, ticks in ipairs(KEYS) do
  local seen = math.max(now, tonumber(ARGV[SEEN + place - 1]))
  answer[#answer + 1] = {
    between(ticks, '-inf', string.format('%.0f', now), most_due),
    between(ticks, string.format('(%.0f', seen), latest, most_soon),
  }
end
return answer
