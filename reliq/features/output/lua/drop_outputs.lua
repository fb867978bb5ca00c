-- drop_outputs: delete streams that gone_outputs has found, unless they are of another message with the same id, sent since.
--
-- KEYS  followed, streams...
-- ARGV  up_to: number, messages... [id, left_at]
--       messages: in the order of the streams; left_at: ms, '' = unknown
-- Returns how many there were
-- uses: heads, ring
-- names of the keys and arguments (tools/generate_scripts.py)
local followed = KEYS[1]
local up_to = tonumber(ARGV[1])
local STREAMS, MESSAGES, MESSAGES_STEP, ID, LEFT_AT = 2, 2, 2, 0, 1
-- end of the names
if up_to <= ends_of(followed, '\t') then return 0 end
for at = STREAMS, #KEYS do redis.call('XLEN', KEYS[at]) end -- a wrong type is refused here, before the first write
local deleted = 0
for at = STREAMS, #KEYS do
  local record = MESSAGES + (at - STREAMS) * MESSAGES_STEP
  local first = redis.call('XRANGE', KEYS[at], '-', '+', 'COUNT', 1)[1]
  local is_later = first and tonumber(string.match(first[1], '^%d+')) > (tonumber(ARGV[record + LEFT_AT]) or math.huge)
  if not is_later and redis.call('HEXISTS', followed, head_field(ARGV[record + ID])) == 0 then
    deleted = deleted + redis.call('UNLINK', KEYS[at])
  end
end
forget_notes(followed, '\t', up_to)
return deleted
