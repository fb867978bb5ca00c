-- cycle_add: add members to the cycle, each with one message. Members that are in it stay as they are.
--
-- KEYS  places, delayed, producers
-- ARGV  producer, sequence: number, members... [member, key_group, id, element]
--       producer: '' = none
-- Returns {'ok', now, 1 or 0 per member: whether it is new}, or {'full', now, length, max_length, unit}: none was added
-- A call that was carried out before changes nothing, so that a late repeat does not bring back a removed member.
--         It answers 1 for each member that is in the cycle with the message of this call.
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, room, producers
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, producers = KEYS[14], KEYS[15]
local producer, sequence = ARGV[1], tonumber(ARGV[2])
local PLACES, MEMBERS, MEMBERS_STEP, MEMBER, KEY_GROUP, ID, ELEMENT = 1, 3, 4, 0, 1, 2, 3
-- end of the names
local q = places(PLACES)
local now = now_ms()
local answer, enqueued = {}, 0
if carried_out(producers, producer, sequence) then
  for at = MEMBERS, #ARGV, MEMBERS_STEP do
    local entry = redis.call('HGET', q.cycle, ARGV[at + KEY_GROUP]) or ''
    answer[#answer + 1] = string.match(entry, '^%S*') == ARGV[at + ID] and 1 or 0
  end
  return {'ok', now, unpack(answer)}
end
local added, added_bytes = 0, 0
for at = MEMBERS, #ARGV, MEMBERS_STEP do
  if redis.call('HEXISTS', q.cycle, ARGV[at + KEY_GROUP]) == 0 then
    added, added_bytes = added + 1, added_bytes + #ARGV[at + ELEMENT]
  end
end
local length, most, unit = refused(q, delayed, added, function() return added_bytes end)
if length then return {'full', now, length, most, unit} end
remember(producers, producer, sequence, now)
redis.call('HSETNX', q.config, 'round', 1)
for at = MEMBERS, #ARGV, MEMBERS_STEP do
  local element = ARGV[at + ELEMENT]
  local new = redis.call('HSETNX', q.cycle, ARGV[at + KEY_GROUP], ARGV[at + ID] .. ' ' .. ARGV[at + MEMBER])
  answer[#answer + 1] = new
  if new == 1 then
    have_entered(q, {element})
    enter(q, element) -- waits for the key if a message of the member before its removal still holds it
    enqueued = enqueued + 1
  end
end
if enqueued > 0 then redis.call('HINCRBY', q.counters, 'enqueued', enqueued) end
return {'ok', now, unpack(answer)}
