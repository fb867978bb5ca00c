-- schedule_remove: delete schedules of a queue.
--
-- KEYS  1 schedules  2 schedule_states  3 ticks  4 runs
-- ARGV  their names
-- Returns how many there were
local schedules, states, ticks, runs = unpack(KEYS)
for _, key in ipairs({schedules, states, runs}) do redis.call('HLEN', key) end -- wrong types are refused here
redis.call('ZREM', ticks, unpack(ARGV)) -- the first write: fails if the key is not a zset
redis.call('HDEL', states, unpack(ARGV))
redis.call('HDEL', runs, unpack(ARGV))
return redis.call('HDEL', schedules, unpack(ARGV))
