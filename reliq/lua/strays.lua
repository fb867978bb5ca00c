-- strays: read messages that wait in this partition although no other one of their key is here: those that are to be taken to
-- the home of their key, and those that wait until a former home has none of their key any more; read only.
--
-- KEYS  waiting, active
-- ARGV  start, most: number
--       start: where to go on in the order of `waiting`; '' = at the first
--       most: messages to return
-- Returns {where to go on ('' = the end), member of `waiting` ...}: of lines that are to be taken to another partition all, in
--         their order, of the others the first of each. Behind a line that may be longer it goes on with that line again
-- uses: element, lanes
-- names of the keys and arguments (tools/generate_scripts.py)
local waiting, active = KEYS[1], KEYS[2]
local start, most = ARGV[1], tonumber(ARGV[2])
-- end of the names
local LOOKS = 200 -- lines looked at in one call
local found = {''}
for _ = 1, LOOKS do
  local first = redis.call('ZRANGEBYLEX', waiting, start == '' and '-' or '[' .. start, '+', 'LIMIT', 0, 1)[1]
  if not first then return found end
  local line = string.sub(first, 1, GROUP)
  start = (is_of_flow(line) and '\v' or line) .. '\255' -- those of flows are skipped at once
  local is_held = redis.call('HEXISTS', active, line) == 1 or redis.call('HEXISTS', active, '#' .. line) == 1
  if not is_held and not is_latest(line) and not is_of_flow(line) then
    if is_stray(first) then
      local room = most + 1 - #found
      local some = redis.call('ZRANGEBYLEX', waiting, '[' .. line, '(' .. line .. '\255', 'LIMIT', 0, room)
      for _, member in ipairs(some) do found[#found + 1] = member end
      if #some == room then start = line end
    else
      found[#found + 1] = first
    end
  end
  if #found > most then break end
end
found[1] = start
return found
