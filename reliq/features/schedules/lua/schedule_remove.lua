-- schedule_remove: delete a schedule of a queue.
--
-- KEYS  schedules, schedule_states, ticks, runs, call?
--       call: has the answer of a call that is repeated
-- ARGV  name, expected
--       expected: its state as the caller has read it, '*' = whatever it is
-- Returns 1, 0 if there was none, -1 if its state is another one: it stays
-- uses: calls
-- names of the keys and arguments (tools/generate_scripts.py)
local schedules, schedule_states, ticks, runs, call = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local name, expected = ARGV[1], ARGV[2]
-- end of the names
if answer_before(call) then return 1 end
for _, key in ipairs({schedules, schedule_states, runs}) do redis.call('HLEN', key) end -- wrong types are refused here
local state = redis.call('HGET', schedule_states, name)
if state and expected ~= '*' and state ~= expected then return -1 end
redis.call('ZREM', ticks, name) -- the first write: fails if the key is not a zset
redis.call('HDEL', schedule_states, name)
redis.call('HDEL', runs, name)
local removed = redis.call('HDEL', schedules, name)
if removed == 1 then answer_with(call, removed) end
return removed
