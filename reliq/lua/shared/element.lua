-- What a script reads of an element without decoding it: the id where the wire format puts it, the rest at the very end
-- (docs/wire-format.md).

-- The id: behind the array's head and the version, a str of up to 255 bytes.
local function id_of(element)
  local head = string.byte(element, 3)
  if not head then return '' end
  if head == 0xd9 then return string.sub(element, 5, 4 + (string.byte(element, 4) or 0)) end
  return string.sub(element, 4, 3 + head % 32)
end

-- The digest of the key that orders a message; nil without one.
local function group_of(element)
  if string.sub(element, -23, -17) == '\165group\176' then return string.sub(element, -16) end
end

local function priority_of(element)
  local last = group_of(element) and -24 or -1
  if string.sub(element, last - 13, last) == '\168priority\164high' then return 'high' end
  if string.sub(element, last - 12, last) == '\168priority\163low' then return 'low' end
end

-- Whether it was made to go round in a cycle.
local function is_cyclic(element)
  return string.sub(element, -30, -24) == '\165cycle\195'
end
