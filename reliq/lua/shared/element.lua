-- What a script reads of an element without decoding it: the id where the wire format puts it, the rest at the very end
-- (docs/wire-format.md).

-- The id: behind the array's head and the version, a str of up to 255 bytes.
local function id_of(element)
  local head = string.byte(element, 3)
  if not head then return '' end
  if head == 0xd9 then return string.sub(element, 5, 4 + (string.byte(element, 4) or 0)) end
  return string.sub(element, 4, 3 + head % 32)
end

-- Whether it ends with `extra`: an array of ten fields does. One of nine ends with the body, whose bytes mean nothing here.
local function has_extra(element)
  return string.byte(element) == 0x9a
end

-- The digest of the key that orders a message; nil without one.
local function group_of(element)
  if has_extra(element) and string.sub(element, -23, -17) == '\165group\176' then return string.sub(element, -16) end
end

-- high, low or nil; and the place of the last byte before it, counted from the end.
local function priority_of(element)
  local last = group_of(element) and -24 or -1
  if not has_extra(element) then return nil, last end
  if string.sub(element, last - 13, last) == '\168priority\164high' then return 'high', last - 14 end
  if string.sub(element, last - 12, last) == '\168priority\163low' then return 'low', last - 13 end
  return nil, last
end

-- Whether it was made to go round in a cycle: it has a key then.
local function is_cyclic(element)
  if not group_of(element) then return false end
  local _, last = priority_of(element)
  return string.sub(element, last - 6, last) == '\165cycle\195'
end
