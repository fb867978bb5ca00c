-- schedule_remove: delete schedules of a queue.
--
-- KEYS  schedules, schedule_states, ticks, runs
-- ARGV  names...
-- Returns how many there were
-- names of the keys and arguments (tools/generate_scripts.py)
local schedules, schedule_states, ticks, runs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local NAMES = 1
-- end of the names
for _, key in ipairs({schedules, schedule_states, runs}) do redis.call('HLEN', key) end -- wrong types are refused here
redis.call('ZREM', ticks, unpack(ARGV, NAMES)) -- the first write: fails if the key is not a zset
redis.call('HDEL', schedule_states, unpack(ARGV, NAMES))
redis.call('HDEL', runs, unpack(ARGV, NAMES))
return redis.call('HDEL', schedules, unpack(ARGV, NAMES))
