-- The fields of `followed` about flows: of a message that waits, of a member, and the ring of news for a monitor. What they have:
-- moments.lua.
local FLOW_NEWS = '\v\v\v'

local function waits_field(id)
  return '\v' .. id
end

local function member_field(id)
  return '\v\v' .. id
end
