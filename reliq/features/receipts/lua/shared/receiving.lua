-- How the element of a message begins once it is received: with another nonce, one more delivery, and the time of the receive
-- as the first one of its headers, as `received_again` of reliq.features.receipts.model writes it. Requires `element`.

local FIRST_RECEIVED, LATEST_RECEIVED = '\180reliq-first-received\173', '\181reliq-latest-received\173' -- 13 digits follow
local DIGITS_OF_TIME = 13
local FALSE = 0xc2

-- The place of the nonce; it has nine bytes.
local function nonce_at(element)
  local head, size = string.byte(element, 3, 4)
  return head == 0xd9 and 5 + (size or 0) or 4 + (head or 0) % 32
end

-- How an element begins, through the nonce.
local function name_in(element)
  return string.sub(element, 1, nonce_at(element) + 8)
end

-- The place behind a text in an element; nil if what is there has no form of a text in headers.
local function behind_text(element, at)
  local head, size, more = string.byte(element, at, at + 2)
  if not more then return nil end
  if head >= 0xa0 and head <= 0xbf then return at + 1 + head - 0xa0 end
  if head == 0xd9 then return at + 2 + size end
  return head == 0xda and at + 3 + size * 256 + more or nil
end

-- The place of the extra fields behind `count` headers and the body; nil if they have unusual forms.
local function extra_behind(element, at, count)
  for _ = 1, 2 * count do
    at = behind_text(element, at)
    if not at then return nil end
  end
  local head, a, b, c, d = string.byte(element, at, at + 4)
  if head == 0xc4 then return at + 2 + a end
  if head == 0xc5 and b then return at + 3 + a * 256 + b end
  return head == 0xc6 and d and at + 5 + ((a * 256 + b) * 256 + c) * 256 + d or nil
end

-- Whether extra fields let a message be received now, and tell that as reliq writes them.
local function is_current(element, at, now)
  local head = string.byte(element, at)
  if not head or head == 0xc0 then return true end
  if head > 0x8f then return false end
  if string.sub(element, at + 1, at + 12) ~= '\170expires_at\207' then
    return not string.find(element, 'expires_at', at, true)
  end
  local _, _, a, b, c, d, e, f = string.byte(element, at + 13, at + 20)
  local expires = ((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f
  return expires == 0 or expires > now
end

-- Which header a receive adds in front of the others, and the place of these; nil if a claim has to see to that. The first
-- header is the latest time, before the first one.
local function added_before(element, at)
  if string.sub(element, at, at + #LATEST_RECEIVED - 1) == LATEST_RECEIVED then
    return LATEST_RECEIVED, at + #LATEST_RECEIVED + DIGITS_OF_TIME
  end
  if string.find(element, 'reliq-latest-received', at, true) then return nil end
  if string.sub(element, at, at + #FIRST_RECEIVED - 1) == FIRST_RECEIVED then return LATEST_RECEIVED, at end
  if string.find(element, 'reliq-first-received', at, true) then return nil end
  return FIRST_RECEIVED, at
end

-- The element of a message as it is received at `now`, a text of digits; nil if a claim has to look at it: it expired, was
-- received `most` times, may have been cancelled in the hands of a consumer that died, or was not written as reliq does.
-- `nonce`: of the new element, eight bytes.
local function received_again(element, nonce, now, most)
  local array, version = string.byte(element, 1, 2)
  if version ~= 1 and version ~= 2 or array ~= 0x99 and array ~= 0x9a then return nil end
  local at = nonce_at(element)
  local kind, _, _, _, _, _, _, _, _, deliveries, failures, redelivered, time, _, _, _, _, _, _, _, _, count =
    string.byte(element, at, at + 21)
  if redelivered ~= FALSE then return nil end
  if kind ~= 0xcf or time ~= 0xcf or not count or count < 0x80 or count > 0x8e then return nil end
  if deliveries > 126 or failures > 127 or deliveries + failures >= most then return nil end
  local first, added, extra = at + 22, FIRST_RECEIVED, extra_behind(element, at + 22, count - 0x80)
  if not extra or not is_current(element, extra, tonumber(now)) then return nil end
  if count > 0x80 then
    added, first = added_before(element, first)
    if not added then return nil end
    if first > at + 22 then count = count - 1 end
  end
  return string.sub(element, 1, at) .. nonce .. string.char(deliveries + 1, failures, redelivered)
    .. string.sub(element, at + 12, at + 20) .. string.char(count + 1) .. added .. now .. string.sub(element, first)
end
