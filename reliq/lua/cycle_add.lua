-- cycle_add: members enter the cycle, each with one message; those who are in it stay as they are.
--
-- KEYS  1-10 places  11 delayed
-- ARGV  for each member: member, group, id, element
-- Returns {'ok', now, 1 or 0 a member: whether it is new}, or {'full', now, length, max_length, unit}: nobody entered
-- uses: now, element, rounds, place, room
local q, delayed = places(1), KEYS[11]
local now = now_ms()
local length, most, unit = refused(q, delayed, #ARGV / 4, function()
  local size = 0
  for at = 4, #ARGV, 4 do size = size + #ARGV[at] end
  return size
end)
if length then return {'full', now, length, most, unit} end
local answer, enqueued = {}, 0
redis.call('HSETNX', q.config, 'round', 1)
for at = 1, #ARGV, 4 do
  local member, group, id, element = unpack(ARGV, at, at + 3)
  local new = redis.call('HSETNX', q.cycle, group, id .. ' ' .. member)
  answer[#answer + 1] = new
  if new == 1 then
    enter(q, element) -- behind an earlier message of a member who was removed, which goes when that ends
    enqueued = enqueued + 1
  end
end
if enqueued > 0 then redis.call('HINCRBY', q.counters, 'enqueued', enqueued) end
return {'ok', now, unpack(answer)}
