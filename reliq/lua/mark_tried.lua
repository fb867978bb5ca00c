-- mark_tried: mark the redelivered message that a worker starts: if the worker dies now, only this message is charged.
-- Where several run, none is, and fewer run at a time afterwards.
--
-- KEYS  trying
-- ARGV  consumer, mark
--       mark: as reliq_monitor.marks has it
-- Returns 1, or 0 if the consumer keeps no marks, or was reclaimed
-- uses: full
-- names of the keys and arguments (tools/generate_scripts.py)
local trying = KEYS[1]
local consumer, mark = ARGV[1], ARGV[2]
-- end of the names
if redis.call('HEXISTS', trying, consumer) == 0 then return 0 end
pass_when_full(trying)
redis.call('HSET', trying, consumer, mark)
return 1
