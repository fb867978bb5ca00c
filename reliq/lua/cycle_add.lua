-- cycle_add: add members to the cycle, each with one message. Members that are in it stay as they are.
--
-- KEYS  1-13 places  14 delayed  15 producers
-- ARGV  1 producer ('' = none)  2 sequence, then for each member: member, group, id, element
-- Returns {'ok', now, 1 or 0 per member: whether it is new}, or {'full', now, length, max_length, unit}: none was added
-- A call that was carried out before changes nothing, so that a late repeat does not bring back a removed member.
--         It answers 1 for each member that is in the cycle with the message of this call.
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, room, producers
local q, delayed, producers = places(1), KEYS[14], KEYS[15]
local producer, sequence = ARGV[1], tonumber(ARGV[2])
local now = now_ms()
local answer, enqueued = {}, 0
if carried_out(producers, producer, sequence) then
  for at = 3, #ARGV, 4 do
    local entry = redis.call('HGET', q.cycle, ARGV[at + 1]) or ''
    answer[#answer + 1] = string.match(entry, '^%S*') == ARGV[at + 2] and 1 or 0
  end
  return {'ok', now, unpack(answer)}
end
local added, added_bytes = 0, 0
for at = 3, #ARGV, 4 do
  if redis.call('HEXISTS', q.cycle, ARGV[at + 1]) == 0 then added, added_bytes = added + 1, added_bytes + #ARGV[at + 3] end
end
local length, most, unit = refused(q, delayed, added, function() return added_bytes end)
if length then return {'full', now, length, most, unit} end
remember(producers, producer, sequence, now)
redis.call('HSETNX', q.config, 'round', 1)
for at = 3, #ARGV, 4 do
  local member, group, id, element = unpack(ARGV, at, at + 3)
  local new = redis.call('HSETNX', q.cycle, group, id .. ' ' .. member)
  answer[#answer + 1] = new
  if new == 1 then
    have_entered(q, {element})
    enter(q, element) -- waits for the key if a message of the member before its removal still holds it
    enqueued = enqueued + 1
  end
end
if enqueued > 0 then redis.call('HINCRBY', q.counters, 'enqueued', enqueued) end
return {'ok', now, unpack(answer)}
