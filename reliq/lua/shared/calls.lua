-- Calls that may be repeated after a lost answer: the key `call` has the answer of one that has changed something. nil = none.

local REMEMBERED = 600000 -- ms: longer than a call is repeated, and than a late request is under way

local function answer_before(call)
  return call and redis.call('GET', call)
end

-- Remember the answer, after the first write; returns it.
local function answer_with(call, text)
  if call then redis.call('SET', call, text, 'PX', REMEMBERED) end
  return text
end
