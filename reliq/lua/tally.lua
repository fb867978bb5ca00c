-- tally: count how many messages consumers hold, where `concurrency` is limited: all of them once it is set, some at a time, or
-- one whose messages a monitor has taken back.
--
-- KEYS  config, slots, lists...
--       lists: processing lists
-- ARGV  counter, begins: flag, ends: flag, members...
--       counter: who counts all of them, and begins or ends that with this call; '' = these are not all
--       members: the consumers of the lists
-- Returns 1, or 0 if another one counts, if all are counted, or if the limit was set anew meanwhile
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, holders, full
-- names of the keys and arguments (tools/generate_scripts.py)
local config = KEYS[1]
local counter, begins, ends = ARGV[1], ARGV[2] == '1', ARGV[3] == '1'
local SLOTS, LISTS, MEMBERS = 2, 4, 4
-- end of the names
local STALE = 5000 -- ms after which another one counts in place of one that has ended
local slots = named_slots(SLOTS)
local most = tonumber(redis.call('HGET', config, 'concurrency') or nil)
if not most then return 0 end
local q = {concurrency = most}
check_slots(q, slots) -- wrong types are refused here, before the first write
local lengths = {}
for at = LISTS, #KEYS do lengths[#lengths + 1] = redis.call('LLEN', KEYS[at]) end

local now = now_ms()
if counter ~= '' then
  local who, at = string.match(redis.call('HGET', slots.holders, COUNTED) or '', '^(%S+) (%d+)$')
  if begins then
    if not who and redis.call('HEXISTS', slots.holders, COUNTED) == 1 then return 0 end
    if who and who ~= counter and now - at < STALE then return 0 end
  elseif who ~= counter then
    return 0
  end
end
pass_when_full(slots.holders)
for at = 1, #lengths do
  if counter == '' then
    note_held(q, slots, KEYS[LISTS + at - 1])
  else
    local known = tonumber(redis.call('HGET', slots.holders, ARGV[MEMBERS + at - 1]) or 0)
    if known ~= lengths[at] then write_length(slots, ARGV[MEMBERS + at - 1], lengths[at], known) end
  end
end
if counter ~= '' then
  redis.call('HSET', slots.holders, COUNTED, ends and '1' or counter .. ' ' .. string.format('%.0f', now))
end
return 1
