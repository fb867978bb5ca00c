-- biography: read the transitions of one message from a part of the history.
--
-- KEYS  history
-- ARGV  id, start, most: number
--       start: the entry of the stream to begin with
--       most: entries to look at
-- Returns {entry to go on with, '' = the end was reached, then for each transition: entry, event, detail}
-- names of the keys and arguments (tools/generate_scripts.py)
local history = KEYS[1]
local id, start, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
-- end of the names
local entries = redis.call('XRANGE', history, start, '+', 'COUNT', most)
local answer = {''}
for _, entry in ipairs(entries) do
  local fields = entry[2] -- id, event, detail, each behind its name
  if fields[2] == id then
    for _, part in ipairs({entry[1], fields[4], fields[6]}) do answer[#answer + 1] = part end
  end
end
if #entries == most then answer[1] = '(' .. entries[most][1] end
return answer
