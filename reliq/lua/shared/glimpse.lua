-- Cut the bodies out of elements that are only shown: a reply then needs no more than what is shown of it.

local AROUND = 1024 -- bytes: an element that is hardly larger than what is shown of it is not cut
local MOST_AROUND = 256 * 1024 -- bytes of all fields but the body; no producer of reliq's exceeds a tenth of it
local LARGE = 1024 * 1024 -- bytes read, after which Lua's memory is freed at once

local CUTS = rawget(_G, 'cmsgpack') and rawget(_G, 'struct') -- fakeredis (reliq.testing) has neither: it shows all

-- Returns where the body's bytes start and how many they are; nil for bytes that are no element.
local function inline_body(element)
  local first = string.byte(element)
  if first ~= 0x99 and first ~= 0x9a then return nil end
  local readable, at = pcall(cmsgpack.unpack_limit, element, 8, 1) -- all before the body; `at` is the offset of its type
  if not readable or at < 0 or at > MOST_AROUND then return nil end
  local width = ({[0xc4] = 1, [0xc5] = 2, [0xc6] = 4})[string.byte(element, at + 1)]
  if not width or #element < at + 1 + width then return nil end
  local size = struct.unpack('>I' .. width, element, at + 2)
  local start = at + 2 + width
  local behind = #element - (start + size - 1)
  if behind < 0 or behind > MOST_AROUND then return nil end
  return start, size, at
end

-- Returns what is shown of an element, and a number: 0 = it is the whole element; the size of the body, if only its first
-- `shown` bytes are left; minus the number of all bytes, for the first of bytes that are no element.
local function glimpse(element, shown)
  if not CUTS or #element <= shown + AROUND then return element, 0 end
  local start, size, at = inline_body(element)
  if not start then return string.sub(element, 1, shown + AROUND), -#element end
  if size <= shown then return element, 0 end
  local head, behind = string.sub(element, 1, at), string.sub(element, start + size)
  return head .. '\198' .. struct.pack('>I4', shown) .. string.sub(element, start, start + shown - 1) .. behind, size
end

-- Give the memory of large elements back, which Redis would count as its own until Lua's next collection. Only what was
-- read by a function that has returned: the variables of a running one keep their values.
local function forget_read(bytes)
  if bytes > LARGE then collectgarbage() end
end
