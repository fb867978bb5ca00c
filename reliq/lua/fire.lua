-- fire: send the messages of due schedules, and set their next ticks.
--
-- KEYS  1-11 places  12 delayed  13 ticks  14 schedule_states  15 runs
-- ARGV  for each schedule: name, its state as the caller has read it, its next state, ms at which that is due ('' = never),
--       ms at which this one is due, its run (JSON), ticks missed, n messages, and for each of them: element, body ('' = it is
--       in the element)
-- Returns {now, for each schedule: 1 = sent, 0 = its state is another one: another monitor has sent it, or it was changed,
--         -1 = it is not due yet, -2 = the queue is full: it is tried again after a second}
-- Refuses what would exceed the limits of the queue, as `enqueue` does.
-- uses: now, element, bodies, rounds, place, room
local FULL_PAUSE = 1000 -- ms
local q, delayed, ticks, states, runs = places(1), unpack(KEYS, 12, 15)
redis.call('ZCARD', ticks) -- wrong types are refused here, before the first write
redis.call('HLEN', states)
redis.call('HLEN', runs)
local now = now_ms()

local schedules, names, at = {}, {}, 1
while at <= #ARGV do
  local name, expected, state, next_due, due, run, missed, n = unpack(ARGV, at, at + 7)
  local one = {
    name = name, expected = expected, state = state, next_due = next_due, due = tonumber(due), run = run,
    missed = tonumber(missed), first = at + 8, last = at + 7 + 2 * n,
  }
  schedules[#schedules + 1], names[#names + 1] = one, name
  at = one.last + 1
end

-- Decide about all of them before the first write.
local found, seen = redis.call('HMGET', states, unpack(names)), {}
for place, one in ipairs(schedules) do
  one.code = (seen[one.name] or found[place] ~= one.expected) and 0 or one.due > now and -1 or 1
  seen[one.name] = true
end

local function size_in(unit, one)
  if unit == 'messages' then return (one.last - one.first + 1) / 2 end
  local bytes = 0
  for at = one.first, one.last, 2 do bytes = bytes + size_of(ARGV[at]) end
  return bytes
end

local function to_send(unit)
  local sum = 0
  for _, one in ipairs(schedules) do sum = sum + (one.code == 1 and size_in(unit, one) or 0) end
  return sum
end

for _ = 1, 2 do -- a queue may have two limits
  local messages = to_send('messages')
  local used, most, unit = refused(q, delayed, messages, function() return to_send('bytes') end)
  if messages == 0 or not used then break end
  local room = most - used
  for _, one in ipairs(schedules) do -- the first ones are sent, the others wait for room
    local size = one.code == 1 and size_in(unit, one) or 0
    if size > room then one.code = -2 else room = room - size end
  end
end
local messages = to_send('messages')

local answer, plain, new_states, new_runs, new_ticks, missed = {now}, {}, {}, {}, {}, 0
local function add(list, key, value)
  list[#list + 1] = key
  list[#list + 1] = value
end
for _, one in ipairs(schedules) do
  answer[#answer + 1] = one.code
  if one.code == 1 then
    missed = missed + one.missed
    add(new_states, one.name, one.state)
    add(new_runs, one.name, string.format('%.0f ', now) .. one.run)
    if one.next_due == '' then redis.call('ZREM', ticks, one.name) else add(new_ticks, one.next_due, one.name) end
    for at = one.first, one.last, 2 do
      local element, body = ARGV[at], ARGV[at + 1]
      if body ~= '' then redis.call('HSET', q.bodies, body_of(element), body) end
      if group_of(element) or priority_of(element) then enter(q, element) else plain[#plain + 1] = element end
    end
  elseif one.code == -2 then
    add(new_ticks, string.format('%.0f', now + FULL_PAUSE), one.name)
    redis.call('HINCRBY', q.counters, 'rejected', size_in('messages', one))
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
return answer
