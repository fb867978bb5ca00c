-- Move messages into a processing list. RPOPLPUSH is the older name of LMOVE ... RIGHT LEFT, and takes 17 bytes less of the
-- append-only file and of the way to a replica for each message. Requires `element` and `follow`.

local LOOKS = 1000 -- entries that one claim does not take: cancelled ones, and those beyond the limits of their keys

-- Take 16 high, 4 normal and 1 low of every 21 while there are messages of each; the others fill the share of an empty list.
-- `move(list, most)` moves messages and returns how many.
local function move_by_priority(q, limit, move)
  local share = {high = 0, messages = 0, low = 0}
  local turn = tonumber(redis.call('HGET', q.counters, 'claimed') or 0)
  for at = turn, turn + limit - 1 do
    local slot = at % 21
    local list = slot == 20 and 'low' or slot % 5 == 4 and 'messages' or 'high'
    share[list] = share[list] + 1
  end
  local moved = 0
  for _, list in ipairs({'high', 'messages', 'low'}) do moved = moved + move(q[list], share[list]) end
  for _, list in ipairs({'high', 'messages', 'low'}) do moved = moved + move(q[list], limit - moved) end
end

-- Refill `messages` from another list when it is empty: idle consumers wait on it.
local function keep_waking(q)
  if redis.call('LLEN', q.messages) > 0 then return end
  local next = redis.call('RPOP', q.high) or redis.call('RPOP', q.low)
  if next then redis.call('LPUSH', q.messages, next) end
end

-- Move up to `limit` messages from the tail of the ready lists to the head of `processing`, until they have `room` bytes:
-- the last one may have more than what is left of it.
-- `refusal_of(element, list)`, if given, looks at each message: for one that must not be taken now it returns a function that
-- puts it elsewhere, after it was taken out of `processing`, and true if no more is to be taken; for others nil. The places
-- of cancelled messages are passed over. Both up to a bounded number.
local function take(q, processing, limit, room, refusal_of)
  local taken, looks, blanks = {}, limit + LOOKS, 0
  local function move(list, most)
    local moved = 0
    while moved < most and room > 0 and looks > 0 do
      local element = redis.call('RPOPLPUSH', list, processing)
      if not element then break end
      local put_elsewhere, ends
      if refusal_of and element ~= BLANK then put_elsewhere, ends = refusal_of(element, list) end
      if element == BLANK then
        redis.call('LPOP', processing)
        looks, blanks = looks - 1, blanks + 1
      elseif put_elsewhere then
        redis.call('LPOP', processing)
        put_elsewhere(element)
        looks = ends and 0 or looks - 1
      else
        moved, room = moved + 1, room - size_of(element)
        if q.history_for then note(q, 'claimed', element, string.match(processing, 'processing:(.*)$')) end
        taken[#taken + 1] = element
      end
    end
    return moved
  end
  if limit > 0 then
    if q.cyclic then open_round(q) end
    if q.prioritised then move_by_priority(q, limit, move) else move(q.messages, limit) end
  end
  if q.cyclic then open_round(q) end
  if q.prioritised then keep_waking(q) end
  if blanks > 0 then redis.call('HINCRBY', q.counters, 'blanks_passed', blanks) end
  if #taken > 0 then redis.call('HINCRBY', q.counters, 'claimed', #taken) end
  return taken
end
