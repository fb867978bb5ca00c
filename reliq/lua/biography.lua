-- biography: read the transitions of one message from a part of the history.
--
-- KEYS  1 history
-- ARGV  1 id  2 entry of the stream to begin with  3 most entries to look at
-- Returns {entry to go on with, '' = the end was reached, then for each transition: entry, event, detail}
local from, most = ARGV[2], tonumber(ARGV[3])
local entries = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', most)
local answer = {''}
for _, entry in ipairs(entries) do
  local fields = entry[2] -- id, event, detail, each behind its name
  if fields[2] == ARGV[1] then
    for _, part in ipairs({entry[1], fields[4], fields[6]}) do answer[#answer + 1] = part end
  end
end
if #entries == most then answer[1] = '(' .. entries[most][1] end
return answer
