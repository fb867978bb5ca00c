-- Read fields of an element without decoding it: the id from its fixed place at the start, the others from the last
-- bytes (docs/wire-format.md).

-- The id: after the array header and the version, a str of up to 255 bytes.
local function id_of(element)
  local head = string.byte(element, 3)
  if not head then return '' end
  if head == 0xd9 then return string.sub(element, 5, 4 + (string.byte(element, 4) or 0)) end
  return string.sub(element, 4, 3 + head % 32)
end

-- Whether the element ends with `extra`. An array of ten fields does; one of nine ends with the body, which is never read.
local function has_extra(element)
  return string.byte(element) == 0x9a
end

-- The digest of the message's ordering key, or nil without a key.
local function group_of(element)
  if has_extra(element) and string.sub(element, -23, -17) == '\165group\176' then return string.sub(element, -16) end
end

-- Returns 'high', 'low' or nil, and the position of the last byte before the priority, counted from the end.
local function priority_of(element)
  local last = group_of(element) and -24 or -1
  if not has_extra(element) then return nil, last end
  if string.sub(element, last - 13, last) == '\168priority\164high' then return 'high', last - 14 end
  if string.sub(element, last - 12, last) == '\168priority\163low' then return 'low', last - 13 end
  return nil, last
end

-- Whether the message was created for a member of a cycle. Such a message has a key.
local function is_cyclic(element)
  if not group_of(element) then return false end
  local _, last = priority_of(element)
  return string.sub(element, last - 6, last) == '\165cycle\195'
end
