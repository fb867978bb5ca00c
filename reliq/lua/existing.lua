-- existing: find the keys that exist.
--
-- KEYS  names...
--       names: any; on a cluster, of one queue
-- ARGV  none
-- Returns the positions of existing keys, from 1
local found = {}
local function look(from, to)
  local count = redis.call('EXISTS', unpack(KEYS, from, to))
  if count == 0 then return end -- the usual case
  if count == to - from + 1 then
    for place = from, to do found[#found + 1] = place end
    return
  end
  local middle = math.floor((from + to) / 2)
  look(from, middle)
  look(middle + 1, to)
end
look(1, #KEYS)
return found
