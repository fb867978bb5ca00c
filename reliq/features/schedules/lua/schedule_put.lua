-- schedule_put: add, change, pause or resume schedules of a queue.
--
-- KEYS  schedules, schedule_states, ticks
-- ARGV  changes... [name, expected, definition, state, due]
--       expected: its state as the caller has read it, '' = there is none
--       definition: '' = unchanged
--       state: its next one; due: ms at which that is due, '' = paused or ended
-- Returns 1 for each that was written, 0 for each whose state is another one: the caller reads it again
-- uses: full
-- names of the keys and arguments (tools/generate_scripts.py)
local schedules, schedule_states, ticks = KEYS[1], KEYS[2], KEYS[3]
local CHANGES, CHANGES_STEP, NAME, EXPECTED, DEFINITION, STATE, DUE = 1, 5, 0, 1, 2, 3, 4
-- end of the names
redis.call('HLEN', schedules) -- wrong types are refused here, before the first write
redis.call('ZCARD', ticks)
local answer = {}
for at = CHANGES, #ARGV, CHANGES_STEP do
  local name, definition, due = ARGV[at + NAME], ARGV[at + DEFINITION], ARGV[at + DUE]
  local same = (redis.call('HGET', schedule_states, name) or '') == ARGV[at + EXPECTED]
  if same then
    if definition ~= '' then
      redis.call('HSET', schedules, name, definition)
    else
      pass_when_full(schedule_states)
    end
    redis.call('HSET', schedule_states, name, ARGV[at + STATE])
    if due == '' then redis.call('ZREM', ticks, name) else redis.call('ZADD', ticks, due, name) end
  end
  answer[#answer + 1] = same and 1 or 0
end
return answer
