-- drop_outputs: delete streams that gone_outputs has found, unless another message with the same id has emitted something since.
--
-- KEYS  followed, streams...
-- ARGV  up_to: number, ids...
--       ids: of the messages, in the order of the streams
-- Returns how many there were
-- uses: heads, ring
-- names of the keys and arguments (tools/generate_scripts.py)
local followed = KEYS[1]
local up_to = tonumber(ARGV[1])
local STREAMS, IDS = 2, 2
-- end of the names
if up_to <= ends_of(followed, '\t') then return 0 end
for at = STREAMS, #KEYS do redis.call('XLEN', KEYS[at]) end -- a wrong type is refused here, before the first write
local deleted = 0
for at = STREAMS, #KEYS do
  if redis.call('HEXISTS', followed, head_field(ARGV[IDS + at - STREAMS])) == 0 then
    deleted = deleted + redis.call('UNLINK', KEYS[at])
  end
end
forget_notes(followed, '\t', up_to)
return deleted
