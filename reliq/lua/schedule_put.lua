-- schedule_put: add, change, pause or resume schedules of a queue.
--
-- KEYS  1 schedules  2 schedule_states  3 ticks
-- ARGV  for each schedule: name, its state as the caller has read it ('' = there is none), its definition ('' = unchanged),
--       its next state, ms at which that is due ('' = paused or ended)
-- Returns 1 for each that was written, 0 for each whose state is another one: the caller reads it again
local schedules, states, ticks = unpack(KEYS)
redis.call('HLEN', schedules) -- wrong types are refused here, before the first write
redis.call('ZCARD', ticks)
local answer = {}
for at = 1, #ARGV, 5 do
  local name, expected, definition, state, due = unpack(ARGV, at, at + 4)
  local same = (redis.call('HGET', states, name) or '') == expected
  if same then
    if due == '' then redis.call('ZREM', ticks, name) end -- a removal first: a pause passes when memory is full
    if definition ~= '' then redis.call('HSET', schedules, name, definition) end
    redis.call('HSET', states, name, state)
    if due ~= '' then redis.call('ZADD', ticks, due, name) end
  end
  answer[#answer + 1] = same and 1 or 0
end
return answer
