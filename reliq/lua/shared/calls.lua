-- Calls that may be repeated after a lost answer: the key `call` has the answer of one that has changed something. nil = none.

local REMEMBERED = 600000 -- ms: longer than a call is repeated, and than a late request is under way

local function answer_before(call)
  return call and redis.call('GET', call)
end

-- The same for an answer of one digit for each of several things.
local function digits_before(call)
  local before = answer_before(call)
  if not before then return nil end
  local digits = {}
  for digit in string.gmatch(before, '%d') do digits[#digits + 1] = tonumber(digit) end
  return digits
end

-- Remember the answer, after the first write; returns it.
local function answer_with(call, text)
  if call then redis.call('SET', call, text, 'PX', REMEMBERED) end
  return text
end
