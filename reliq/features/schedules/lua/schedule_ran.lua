-- schedule_ran: note a run that was started by hand, of a schedule that is still there.
--
-- KEYS  schedules, runs
-- ARGV  name, run
--       run: ms, and JSON
-- Returns 1, or 0 if there is no such schedule
-- names of the keys and arguments (tools/generate_scripts.py)
local schedules, runs = KEYS[1], KEYS[2]
local name, run = ARGV[1], ARGV[2]
-- end of the names
redis.call('HLEN', runs) -- wrong types are refused here, before the first write
if redis.call('HEXISTS', schedules, name) == 0 then return 0 end
redis.call('HSET', runs, name, run)
return 1
