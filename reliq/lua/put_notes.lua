-- put_notes: store what a message's handler has reported, and that it was cancelled, before a monitor enqueues it here from another
-- partition.
--
-- KEYS  report, told, brought
-- ARGV  id, cancelled, kept, told_kept, fields...
--       brought: exists once the message has entered: then nothing is stored
--       cancelled: ms at which its consumer was told that it is cancelled; '' = it was not
--       kept, told_kept: ms for which these are kept
--       fields: of the report, each with its value
-- Returns 1, or 0: the message is here
-- names of the keys and arguments (tools/generate_scripts.py)
local report, told, brought = KEYS[1], KEYS[2], KEYS[3]
local id, cancelled, kept, told_kept = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local FIELDS = 5
-- end of the names
redis.call('HLEN', report) -- wrong types are refused here, before the first write
redis.call('HLEN', told)
if redis.call('GET', brought) then return 0 end
if cancelled ~= '' then
  redis.call('HSET', told, id, cancelled)
  redis.call('PEXPIRE', told, told_kept)
end
if #ARGV >= FIELDS then
  redis.call('HDEL', report, 'fraction', 'text', 'state') -- of another message with the same id
  redis.call('HSET', report, unpack(ARGV, FIELDS))
  redis.call('PEXPIRE', report, kept)
end
return 1
