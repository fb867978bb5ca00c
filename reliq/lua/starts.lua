-- starts: read the first bytes of bodies that are stored apart from their elements; read only.
--
-- KEYS  bodies
-- ARGV  shown: number, references...
--       shown: bytes of each body
-- Returns the start of each body, false for one that is not there
-- uses: glimpse
-- names of the keys and arguments (tools/generate_scripts.py)
local bodies = KEYS[1]
local shown = tonumber(ARGV[1])
local REFERENCES = 2
-- end of the names
local answer, bytes = {}, 0
local function start_of(reference)
  local body = redis.call('HGET', bodies, reference)
  if not body then return false end
  bytes = bytes + #body
  return string.sub(body, 1, shown)
end
for at = REFERENCES, #ARGV do answer[#answer + 1] = start_of(ARGV[at]) end
forget_read(bytes)
return answer
