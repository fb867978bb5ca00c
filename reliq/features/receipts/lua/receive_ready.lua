-- receive_ready: put ready messages in flight, and with them those that wait for the same keys. Nearly every receive, kept as
-- cheap as possible: what a claim has to look at is left to it.
--
-- KEYS  messages, waiting, active, cycle, counters, config, bodies, received, receipts, early
-- ARGV  visible: number, limit: number, room: number, most: number, runs: flag, nonces
--       visible: ms
--       room: bytes of bodies and elements, which the last message may exceed
--       most: receives of a message; others are left to a claim
--       runs: also what waits behind a message for its key
--       nonces: those of the new elements, eight bytes each
-- Returns {what is left, messages in flight, element ...}, oldest first. What is left: '' = nothing that may be received now; 'due' = messages
--         whose time in flight is over, or that come before others in flight; 'claim' = messages that a claim has to look at
-- Leaves a queue with limits, a history, priorities or a cycle to a claim.
-- uses: now, element, lanes, flights, receiving
-- names of the keys and arguments (tools/generate_scripts.py)
local messages, waiting, active, cycle, counters, config = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local bodies, received, receipts, early = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local visible, limit, room, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local runs, nonces = ARGV[5] == '1', ARGV[6]
-- end of the names
local flying = redis.call('ZCARD', received) -- wrong types are refused here, before the first write
redis.call('HLEN', counters)
local settings = redis.call('HMGET', config, 'paused', 'limited', 'history', 'prioritised', 'round')
if settings[2] or settings[3] or settings[4] or settings[5] or redis.call('HLEN', cycle) > 0 then return {'claim', flying} end
local now = now_ms()
local time = string.format('%.0f', now)

local elements, turns, groups, turns_of, left, bytes = {}, {}, {}, {}, {}, 0
local function put(element, turn)
  local at = 8 * #elements
  local again, apart = received_again(element, string.sub(nonces, at + 1, at + 8), time, most), body_of(element)
  if not again or apart and redis.call('HEXISTS', bodies, apart) == 0 then return false end
  elements[#elements + 1], turns[#turns + 1] = again, turn
  bytes = bytes + (apart and size_of(element) or #element)
  return true
end
local function has_room()
  return #elements < limit and bytes < room
end

-- Take what waits for a key, behind a message that is ready.
local function put_line(group)
  local line = redis.call('ZRANGEBYLEX', waiting, '[' .. group, '(' .. group .. '\255', 'LIMIT', 0, limit - #elements)
  for _, entry in ipairs(line) do
    local turn = string.sub(entry, GROUP + 1, GROUP + #FIRST_TURN)
    if goes_home(turn) or not has_room() or not put(element_in_line(entry), turn) then return end
    left[#left + 1] = entry
    turns_of[group] = turns_of[group] .. turn
  end
end

local heads, stopped = 0, false
local ready = settings[1] and {} or redis.call('LRANGE', messages, -limit, -1)
for place = #ready, 1, -1 do
  if not has_room() then break end
  local group = group_of(ready[place])
  if group and is_latest(group) or not put(ready[place], FIRST_TURN) then
    stopped = true
    break
  end
  heads = heads + 1
  if group and not string.find(group, '%X') then -- an ordering key
    if not turns_of[group] then groups[#groups + 1] = group end
    turns_of[group] = (turns_of[group] or '') .. FIRST_TURN
    if runs then put_line(group) end
  end
end
local rest = stopped and 'claim' or ''
if not stopped and #elements < limit then
  local due = redis.call('ZRANGEBYSCORE', received, '-inf', now, 'LIMIT', 0, 1)[1]
  if due or redis.call('SCARD', early) > 0 then rest = 'due' end
end
if #elements == 0 then return {rest, flying} end

local ids = ids_of(elements)
local there = redis.call('HMGET', receipts, unpack(ids))
local holders = #groups > 0 and redis.call('HMGET', active, unpack(groups)) or {}
local until_ms, scored, written, seen = string.format('%.0f', now + visible), {}, {}, {}
for at, element in ipairs(elements) do
  local field = ids[at]
  if there[at] or seen[field] then field = name_in(element) end -- another message with this id is in flight
  seen[field] = true
  scored[#scored + 1], scored[#scored + 2] = until_ms, field
  written[#written + 1], written[#written + 2] = field, turns[at] .. element
end
if heads == 1 then redis.call('RPOP', messages) else redis.call('LTRIM', messages, 0, -heads - 1) end
if #left > 0 then redis.call('ZREM', waiting, unpack(left)) end
redis.call('ZADD', received, unpack(scored))
redis.call('HSET', receipts, unpack(written))
if #groups > 0 then
  local held = {}
  for at, group in ipairs(groups) do
    local before = string.match(holders[at] or '', '^ (%d+)$') or ''
    held[#held + 1], held[#held + 2] = group, ' ' .. before .. turns_of[group]
  end
  redis.call('HSET', active, unpack(held))
end
redis.call('HINCRBY', counters, 'claimed', #elements)
return {rest, flying + #elements, unpack(elements)}
