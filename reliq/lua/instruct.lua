-- instruct: tell the process of a consumer to pause, to go on or to stop. It reads that with its next heartbeat.
--
-- KEYS  told, consumers
-- ARGV  consumer, field, at, kept
--       field: the instruction, as `told` has it: a blank, a verb, and the process
--       at: ms of the instruction: of several the latest counts
--       kept: ms for which the instruction is
-- Returns 1, or 0 if the consumer is not registered
-- names of the keys and arguments (tools/generate_scripts.py)
local told, consumers = KEYS[1], KEYS[2]
local consumer, field, at, kept = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- end of the names
redis.call('HLEN', told) -- a wrong type is refused here, before the first write
if redis.call('SISMEMBER', consumers, consumer) == 0 then return 0 end
redis.call('PERSIST', told) -- no effect that lasts, but after this write the next ones pass when memory is full
redis.call('HSET', told, field, at)
redis.call('PEXPIRE', told, kept)
return 1
