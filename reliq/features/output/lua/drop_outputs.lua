-- drop_outputs: delete streams that gone_outputs has found, unless another message with the same id has emitted something since.
--
-- KEYS  followed, streams...
-- ARGV  up_to: number, ids...
--       ids: of the messages, in the order of the streams
-- Returns how many there were
-- uses: heads
-- names of the keys and arguments (tools/generate_scripts.py)
local followed = KEYS[1]
local up_to = tonumber(ARGV[1])
local STREAMS, IDS = 2, 2
-- end of the names
local done = tonumber(redis.call('HGET', followed, '\t\t') or 0)
if up_to <= done then return 0 end
for at = STREAMS, #KEYS do redis.call('XLEN', KEYS[at]) end -- a wrong type is refused here, before the first write
local deleted = 0
for at = STREAMS, #KEYS do
  if redis.call('HEXISTS', followed, head_field(ARGV[IDS + at - STREAMS])) == 0 then
    deleted = deleted + redis.call('UNLINK', KEYS[at])
  end
end
for number = done + 1, up_to do redis.call('HDEL', followed, '\t\t' .. string.format('%d', number)) end
if tonumber(redis.call('HGET', followed, '\t') or 0) > up_to then
  redis.call('HSET', followed, '\t\t', string.format('%d', up_to))
else
  redis.call('HDEL', followed, '\t', '\t\t')
end
return deleted
