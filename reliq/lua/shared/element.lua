-- Read fields of an element without decoding it: the id from its fixed place at the start, the others from the last
-- bytes (docs/reference/wire-format.md). reliq.model.element has the same constants; tests compare them with what msgspec writes.

local VERSION_APART = 2 -- the body of such an element lies in the hash `bodies`
local BODY_REFERENCE = 12 -- bytes: the field of `bodies`, which ends with the size of the body as four bytes
local APART = 8 + BODY_REFERENCE -- bytes: what ends such an element, '\165apart\196\12' and the reference
local GROUP = 16 -- bytes
local BATCH = 12 -- bytes
local COST = 8 -- bytes: a float64
local MAX_COST = 1000000000
local BLANK = '\193cancelled' -- in the place of a ready message that was cancelled: to take it out of a long list would take too long
-- How these fields begin, in the order in which they end an element; each may be absent. The priority also has its value.
local TAIL = {
  cost = '\164cost\203', batch = '\165batch\172', cycle = '\165cycle\195', lane = '\164lane\195', high = '\168priority\164high', low = '\168priority\163low', group = '\165group\176',
}
local PRIORITY = '\168priority'

-- Whether an element has these bytes anywhere: most have not, and this takes less time than to find the place of a field.
local function has(element, bytes)
  return string.find(element, bytes, 1, true) ~= nil
end

-- The id: after the array header and the version, a str of up to 255 bytes.
local function id_of(element)
  local head = string.byte(element, 3)
  if not head then return '' end
  if head == 0xd9 then return string.sub(element, 5, 4 + (string.byte(element, 4) or 0)) end
  return string.sub(element, 4, 3 + head % 32)
end

local function ids_of(elements)
  local ids = {}
  for at, element in ipairs(elements) do ids[at] = id_of(element) end
  return ids
end

-- The field of `bodies` with the element's body, or nil if the body is in the element.
local function body_of(element)
  if string.byte(element, 2) == VERSION_APART then return string.sub(element, -BODY_REFERENCE) end
end

-- The bytes of a message in Redis' memory, without the overhead.
local function size_of(element)
  if string.byte(element, 2) ~= VERSION_APART then return #element end
  local a, b, c, d = string.byte(element, -4, -1)
  return #element + ((a * 256 + b) * 256 + c) * 256 + d
end

-- The position, counted from the end, of the last byte before the reference to the body; nil without extra fields. An
-- array of ten fields has them; one of nine ends with the body, which is never read.
local function end_of(element)
  if string.byte(element) ~= 0x9a then return nil end
  return body_of(element) and -1 - APART or -1
end

local groups, priorities = {}, {} -- what this call has read, by element: a script asks for them several times

-- The digest of the message's ordering key, or nil without a key. The characters tell it from the end of a body that looks
-- like the beginning of a key: what follows a body is never made of these alone.
local function group_of(element)
  local group = groups[element]
  if group ~= nil then return group or nil end
  local last = end_of(element)
  if not last then return nil end
  local first = last - GROUP + 1
  group = string.sub(element, first - #TAIL.group, first - 1) == TAIL.group and string.sub(element, first, last)
  group = group and not string.find(group, '[^%w=_-]') and group
  groups[element] = group
  return group or nil
end

-- Whether this is the group of a dedup key whose newest message replaces the one that waits. Groups of ordering keys are
-- hexadecimal digits.
local function is_latest(group)
  return string.sub(group, 1, 1) == '='
end

-- Returns 'high', 'low' or nil, and the position of the last byte before the priority, counted from the end.
local function priority_of(element)
  local known = priorities[element]
  if known then return known[1], known[2] end
  local last = end_of(element)
  if not last then return nil, -1 end
  if group_of(element) then last = last - GROUP - #TAIL.group end
  if not has(element, PRIORITY) then return nil, last end
  known = {nil, last}
  for _, priority in ipairs({'high', 'low'}) do
    local first = last - #TAIL[priority] + 1
    if string.sub(element, first, last) == TAIL[priority] then known = {priority, first - 1} end
  end
  priorities[element] = known
  return known[1], known[2]
end

-- Whether the message was created for a member of a cycle. Such a message has a key.
local function is_cyclic(element)
  if not has(element, TAIL.cycle) or not group_of(element) then return false end
  local _, last = priority_of(element)
  return string.sub(element, last - #TAIL.cycle + 1, last) == TAIL.cycle
end

-- Whether the message has a limit key: its group is the digest of that key, and not of an ordering key.
local function is_laned(element)
  if not has(element, TAIL.lane) or not group_of(element) then return false end
  local _, last = priority_of(element)
  return string.sub(element, last - #TAIL.lane + 1, last) == TAIL.lane
end

-- The position of the last byte before the flags of a key, counted from the end.
local function before_flags(element)
  local _, last = priority_of(element)
  for _, flag in ipairs({TAIL.cycle, TAIL.lane}) do
    if string.sub(element, last - #flag + 1, last) == flag then last = last - #flag end
  end
  return last
end

-- The id of the message's batch, or nil. No text that a field may have, which is UTF-8, looks like one.
local function batch_of(element)
  if string.byte(element) ~= 0x9a or not has(element, TAIL.batch) then return nil end
  if string.sub(element, -#TAIL.batch - BATCH, -BATCH - 1) == TAIL.batch then -- without other fields of the tail
    local batch = string.sub(element, -BATCH)
    return not string.find(batch, '[^%w_-]') and batch or nil
  end
  local last = before_flags(element)
  local first = last - BATCH + 1
  if string.sub(element, first - #TAIL.batch, first - 1) ~= TAIL.batch then return nil end
  local batch = string.sub(element, first, last)
  return not string.find(batch, '[^%w_-]') and batch or nil
end

-- How much of a rate the message takes: 1, unless it was sent with another cost. No text looks like one: the first byte of
-- a positive float64 cannot follow the byte before it in UTF-8.
local function cost_of(element)
  if string.byte(element) ~= 0x9a or not has(element, TAIL.cost) then return 1 end
  local last = before_flags(element)
  if batch_of(element) then last = last - BATCH - #TAIL.batch end
  local first = last - COST + 1
  local sign = string.byte(element, first)
  if string.sub(element, first - #TAIL.cost, first - 1) ~= TAIL.cost or sign > 127 then return 1 end
  local head, fraction = string.byte(element, first + 1), 0
  for at = last, first + 2, -1 do fraction = (fraction + string.byte(element, at)) / 256 end
  local exponent = sign * 16 + math.floor(head / 16)
  if exponent == 0 then return 0 end
  local cost = (1 + (head % 16 + fraction) / 16) * 2 ^ (exponent - 1023)
  return cost <= MAX_COST and cost or 1
end
