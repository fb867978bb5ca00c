-- publish: add a copy of one message to several queues, to all of them or to none.
--
-- KEYS  queues... [places, delayed, index, producers]
--       the producers of the first queue tell whether the call was carried out before
-- ARGV  producer, sequence: number, id, element, delay: number, homes...
--       delay: ms
--       homes: for each that is one of several its position, the version of the layout that the producer knows, and 1 if the message waits
--       there for its key, which its former home still has
-- Returns {'ok' | 'repeated', now}, or {'full', now, length, max_length, position of the full queue, unit}: nothing was
--         enqueued; or {'moved', now, {position ...}, {position ...}}: nothing was, because these queues are
--         not the partition of its key; the second ones still have others of the key
-- Refuses when one queue is full, unless the config of that queue has `overflow drop`: it is skipped and counts a rejection.
-- uses: now, element, bodies, index, rounds, lanes, partition, homes, follow, place, room, producers
-- names of the keys and arguments (tools/generate_scripts.py)
local producer, sequence, id, element, delay = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])
local QUEUES, QUEUES_STEP, PLACES, DELAYED, INDEX, PRODUCERS, HOMES = 1, 16, 0, 13, 14, 15, 6
-- end of the names
local now = now_ms()
local function each_bodies(delete)
  for at = QUEUES, #KEYS, QUEUES_STEP do delete(named_places(at + PLACES).bodies, {element}) end
end
local first = KEYS[QUEUES + PRODUCERS]
if carried_out(first, producer, sequence) then
  each_bodies(take_back_late)
  return {'repeated', now}
end

local takers, passed, moved, has_others, held = {}, {}, {}, {}, {}
local group = group_of(element)
local versions = {}
for at = HOMES, #ARGV do
  local place, version, waits = string.match(ARGV[at], '^(%d+) (%d+) (%d)$')
  versions[tonumber(place)], held[tonumber(place)] = tonumber(version), waits == '1'
end
for at = QUEUES, #KEYS, QUEUES_STEP do
  local q, delayed, index, producers = places(at + PLACES), KEYS[at + DELAYED], KEYS[at + INDEX], KEYS[at + PRODUCERS]
  redis.call('HLEN', index) -- wrong types are refused here, before the first write
  if producers ~= first then redis.call('HLEN', producers) end
  check_entering(q, {element})
  local place = (at - QUEUES) / QUEUES_STEP
  if group and (is_away(q, group, element) or is_behind(q, versions[place] or 0)) or not group and is_closed(q.config, redis.call('HGET', q.config, 'retired')) then
    moved[#moved + 1] = place -- however full this queue is
    if group and has_key(q, group) then has_others[#has_others + 1] = place end
  else
    local length, most, unit = refused(q, delayed, 1, function() return size_of(element) end)
    if not length then
      takers[#takers + 1] = {q, delayed, index, producers, held[place], versions[place] or 0}
    elseif redis.call('HGET', q.config, 'overflow') == 'drop' then
      passed[#passed + 1] = q
    else
      each_bodies(delete_bodies)
      return {'full', now, length, most, place, unit}
    end
  end
end

if #moved > 0 then
  each_bodies(delete_bodies)
  return {'moved', now, moved, has_others}
end
remember(first, producer, sequence, now)
for _, q in ipairs(passed) do
  redis.call('HINCRBY', q.counters, 'rejected', 1)
  delete_bodies(q.bodies, {element})
end
for _, taker in ipairs(takers) do
  local q, delayed, index, producers, waits, version = unpack(taker, 1, 6)
  if producers ~= first then remember(producers, producer, sequence, now) end -- a deletion looks for it
  have_entered(q, {element})
  if delay > 0 then
    index_add(delayed, index, now + delay, id, element)
  elseif waits then
    join_line(q, group, element)
  else
    enter(q, element, version)
  end
  redis.call('HINCRBY', q.counters, 'enqueued', 1)
end
return {'ok', now}
