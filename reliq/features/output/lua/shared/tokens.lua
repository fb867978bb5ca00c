-- The tokens of calls: which of them have come. Those of a handler are remembered as the highest number, and behind it the lower ones that
-- have not come: `#handler.7,3,5,`. Others are remembered as they are.

local MOST, LONGEST = 100, 1000 -- lower numbers, and characters of these: the lowest ones are given up

-- Returns what to remember after this call; nil if it has come before.
local function unseen(latest, token)
  local handler, number = string.match(token, '^(#%x+)%.(%d+)$')
  if not handler then return token ~= latest and token or nil end
  local former, highest, missing = string.match(latest, '^(#%x+)%.(%d+)(,.*)$')
  if former ~= handler then highest, missing = 0, ',' end
  number, highest = tonumber(number), tonumber(highest)
  if number <= highest then
    local left, found = string.gsub(missing, ',' .. string.format('%d', number) .. ',', ',', 1)
    if found == 0 then return nil end
    missing = left
  end
  for one = math.max(highest + 1, number - MOST), number - 1 do missing = missing .. string.format('%d,', one) end
  if #missing > LONGEST then missing = string.match(string.sub(missing, -LONGEST), ',.*$') end
  return handler .. string.format('.%d', math.max(highest, number)) .. missing
end
