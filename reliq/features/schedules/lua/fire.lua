-- fire: send the messages of due schedules, and set their next ticks.
--
-- KEYS  places, delayed, ticks, schedule_states, runs
-- ARGV  schedules... [name, expected, state, next_due, due, run, missed, count, messages... [element, body]]
--       expected: its state as the caller has read it
--       state: its next one; next_due: ms at which that is due, '' = never
--       due: ms at which this one is
--       run: JSON
--       missed: ticks; count: n messages
--       body: '' = it is in the element
-- Returns {now, for each schedule: 1 = sent, 0 = its state is another one: another monitor has sent it, or it was changed,
--         -1 = it is not due yet, -2 = the queue is full: it is tried again after a second}
-- Refuses what would exceed the limits of the queue, as `enqueue` does.
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, room
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, ticks, schedule_states, runs = KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local PLACES, SCHEDULES, NAME, EXPECTED, STATE, NEXT_DUE, DUE, RUN, MISSED, COUNT = 1, 1, 0, 1, 2, 3, 4, 5, 6, 7
local MESSAGES, MESSAGES_STEP, ELEMENT, BODY = 8, 2, 0, 1
-- end of the names
local SENT, CHANGED, EARLY, FULL = 1, 0, -1, -2
local FULL_PAUSE = 1000 -- ms
local q = places(PLACES)
redis.call('ZCARD', delayed) -- wrong types are refused here, before the first write
redis.call('ZCARD', ticks)
redis.call('HLEN', schedule_states)
redis.call('HLEN', runs)
local now = now_ms()

-- Plain tables and counters in place of a table for each schedule: thousands of them may be due at one instant.
local argv, names, starts, counts, at = ARGV, {}, {}, {}, SCHEDULES
while at <= #argv do
  local place = #names + 1
  names[place], starts[place], counts[place] = argv[at + NAME], at, tonumber(argv[at + COUNT])
  at = at + MESSAGES + MESSAGES_STEP * counts[place]
end

-- Decide about all of them before the first write.
local found, seen, codes, messages = redis.call('HMGET', schedule_states, unpack(names)), {}, {}, 0
for place, start in ipairs(starts) do
  local name, code = names[place], SENT
  if found[place] ~= argv[start + EXPECTED] or seen[name] then
    code = CHANGED
  elseif tonumber(argv[start + DUE]) > now then
    code = EARLY
  else
    messages = messages + counts[place]
  end
  seen[name], codes[place] = true, code
end

local function size_in(unit, place)
  if unit == 'messages' then return counts[place] end
  local first, bytes = starts[place] + MESSAGES, 0
  for at = first, first + MESSAGES_STEP * counts[place] - 1, MESSAGES_STEP do
    bytes = bytes + size_of(argv[at + ELEMENT])
  end
  return bytes
end

local function to_send(unit)
  local sum = 0
  for place, code in ipairs(codes) do sum = sum + (code == SENT and size_in(unit, place) or 0) end
  return sum
end

local rejected = 0
for _ = 1, 2 do -- a queue may have two limits
  if messages == 0 then break end
  local used, most, unit = refused(q, delayed, messages, function() return to_send('bytes') end)
  if not used then break end
  local room = most - used
  for place, code in ipairs(codes) do -- the first ones are sent, the others wait for room
    local size = code == SENT and size_in(unit, place) or 0
    if size > 0 and size > room then
      codes[place], rejected, messages = FULL, rejected + counts[place], messages - counts[place]
    else
      room = room - size
    end
  end
end

local plain, new_states, new_runs, new_ticks, sent, ticking, missed = {}, {}, {}, {}, 0, 0, 0
local at_now, later = string.format('%.0f ', now), string.format('%.0f', now + FULL_PAUSE)
for place, start in ipairs(starts) do
  local name, next_due = names[place], later
  if codes[place] == SENT then
    next_due, missed = argv[start + NEXT_DUE], missed + argv[start + MISSED]
    new_states[sent + 1], new_states[sent + 2] = name, argv[start + STATE]
    new_runs[sent + 1], new_runs[sent + 2] = name, at_now .. argv[start + RUN]
    sent = sent + 2
    local first = start + MESSAGES
    for at = first, first + MESSAGES_STEP * counts[place] - 1, MESSAGES_STEP do
      local element, body = argv[at + ELEMENT], argv[at + BODY]
      if body ~= '' then redis.call('HSET', q.bodies, body_of(element), body) end
      if q.follows then have_entered(q, {element}) end
      if end_of(element) and (group_of(element) or priority_of(element) or cost_of(element) ~= 1) then
        enter(q, element)
      else
        plain[#plain + 1] = element
      end
    end
  end
  if next_due == '' then
    redis.call('ZREM', ticks, name)
  elseif codes[place] == SENT or codes[place] == FULL then
    new_ticks[ticking + 1], new_ticks[ticking + 2] = next_due, name
    ticking = ticking + 2
  end
end
if ticking > 0 then redis.call('ZADD', ticks, unpack(new_ticks)) end
if sent > 0 then
  redis.call('HSET', schedule_states, unpack(new_states))
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
