-- fire: send the messages of due schedules, and set their next ticks.
--
-- KEYS  1-11 places  12 delayed  13 ticks  14 schedule_states  15 runs
-- ARGV  for each schedule: name, its state as the caller has read it, its next state, ms at which that is due ('' = never),
--       ms at which this one is due, its run (JSON), ticks missed, n messages, and for each of them: element, body ('' = it is
--       in the element)
-- Returns {now, for each schedule: 1 = sent, 0 = its state is another one: another monitor has sent it, or it was changed,
--         -1 = it is not due yet, -2 = the queue is full: it is tried again after a second}
-- Refuses what would exceed the limits of the queue, as `enqueue` does.
-- uses: now, element, bodies, rounds, lanes, place, room
local EXPECTED, STATE, NEXT_DUE, DUE, RUN, MISSED, COUNT, MESSAGES = 1, 2, 3, 4, 5, 6, 7, 8 -- behind the name
local SENT, CHANGED, EARLY, FULL = 1, 0, -1, -2
local FULL_PAUSE = 1000 -- ms
local q, delayed, ticks, states, runs = places(1), unpack(KEYS, 12, 15)
redis.call('ZCARD', delayed) -- wrong types are refused here, before the first write
redis.call('ZCARD', ticks)
redis.call('HLEN', states)
redis.call('HLEN', runs)
local now = now_ms()

local names, starts, at = {}, {}, 1 -- no table for each schedule: there may be thousands at one instant
while at <= #ARGV do
  names[#names + 1], starts[#starts + 1] = ARGV[at], at
  at = at + MESSAGES + 2 * ARGV[at + COUNT]
end

-- Decide about all of them before the first write.
local found, seen, codes = redis.call('HMGET', states, unpack(names)), {}, {}
for place, start in ipairs(starts) do
  local name = names[place]
  codes[place] = (seen[name] or found[place] ~= ARGV[start + EXPECTED]) and CHANGED
    or tonumber(ARGV[start + DUE]) > now and EARLY or SENT
  seen[name] = true
end

local function size_in(unit, start)
  local count = tonumber(ARGV[start + COUNT])
  if unit == 'messages' then return count end
  local bytes = 0
  for at = start + MESSAGES, start + MESSAGES + 2 * (count - 1), 2 do bytes = bytes + size_of(ARGV[at]) end
  return bytes
end

local function to_send(unit)
  local sum = 0
  for place, start in ipairs(starts) do sum = sum + (codes[place] == SENT and size_in(unit, start) or 0) end
  return sum
end

for _ = 1, 2 do -- a queue may have two limits
  local messages = to_send('messages')
  if messages == 0 then break end
  local used, most, unit = refused(q, delayed, messages, function() return to_send('bytes') end)
  if not used then break end
  local room = most - used
  for place, start in ipairs(starts) do -- the first ones are sent, the others wait for room
    local size = codes[place] == SENT and size_in(unit, start) or 0
    if size > room then codes[place] = FULL else room = room - size end
  end
end

local plain, new_states, new_runs, new_ticks, messages, missed, rejected = {}, {}, {}, {}, 0, 0, 0
local at_now, later = string.format('%.0f ', now), string.format('%.0f', now + FULL_PAUSE)
local function add(list, key, value)
  local length = #list
  list[length + 1], list[length + 2] = key, value
end
for place, start in ipairs(starts) do
  local name, count = names[place], tonumber(ARGV[start + COUNT])
  if codes[place] == SENT then
    messages, missed = messages + count, missed + ARGV[start + MISSED]
    add(new_states, name, ARGV[start + STATE])
    add(new_runs, name, at_now .. ARGV[start + RUN])
    local next_due = ARGV[start + NEXT_DUE]
    if next_due == '' then redis.call('ZREM', ticks, name) else add(new_ticks, next_due, name) end
    for at = start + MESSAGES, start + MESSAGES + 2 * (count - 1), 2 do
      local element, body = ARGV[at], ARGV[at + 1]
      if body ~= '' then redis.call('HSET', q.bodies, body_of(element), body) end
      if group_of(element) or priority_of(element) then enter(q, element) else plain[#plain + 1] = element end
    end
  elseif codes[place] == FULL then
    add(new_ticks, later, name)
    rejected = rejected + count
  end
end
if #new_ticks > 0 then redis.call('ZADD', ticks, unpack(new_ticks)) end
if #new_states > 0 then
  redis.call('HSET', states, unpack(new_states))
  redis.call('HSET', runs, unpack(new_runs))
end
for from = 1, #plain, 1000 do
  redis.call('LPUSH', q.messages, unpack(plain, from, math.min(from + 999, #plain)))
end
if messages > 0 then
  redis.call('HINCRBY', q.counters, 'enqueued', messages)
  redis.call('HINCRBY', q.counters, 'scheduled', messages)
end
if missed > 0 then redis.call('HINCRBY', q.counters, 'ticks_missed', missed) end
if rejected > 0 then redis.call('HINCRBY', q.counters, 'rejected', rejected) end
return {now, unpack(codes)}
