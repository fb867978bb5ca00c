-- redrive: move dead letters back into the queue, each only if it still exists.
--
-- KEYS  places, dead, index, call?
--       call: has the answer of a call that is repeated, one digit a letter
-- ARGV  letters... [element, id, member, again]
--       member: of the cycle; '' = none
--       again: the new element
-- Returns one number per letter: 1 = redriven, 0 = it did not exist, its member is in the cycle with another message, or a
--         newer message of its dedup key is there and replaces it
-- uses: now, element, letters, bodies, rounds, lanes, partition, homes, follow, place, calls
-- names of the keys and arguments (tools/generate_scripts.py)
local dead, index, call = KEYS[14], KEYS[15], KEYS[16]
local PLACES, LETTERS, LETTERS_STEP, ELEMENT, ID, MEMBER, AGAIN = 1, 1, 4, 0, 1, 2, 3
-- end of the names
local q = places(PLACES)
local before = digits_before(call)
if before then return before end
redis.call('HLEN', index) -- a wrong type is refused here, before the first write
local answer, redriven, replaced = {}, 0, 0

-- Of the messages of a dedup key, the one that was sent last is to run. Ids that reliq makes begin with the time (UUIDv7); of
-- others it is known only when both are letters of this call, which has those that died first before the others.
local TIMED = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-7%x%x%x%-'
local revived = {}
local function is_newer(id, other)
  if revived[other] then return true end
  return string.find(id, TIMED) and string.find(other, TIMED) and id > other
end

-- Whether a message of the same dedup key is there that was sent after this one.
local function is_outdated(group, id)
  local first = first_in_line(q, group)
  local newest = first and id_of(element_in_line(first)) or redis.call('HGET', q.active, group)
  return newest and not is_newer(id, newest)
end

for at = LETTERS, #ARGV, LETTERS_STEP do
  local element, id = ARGV[at + ELEMENT], ARGV[at + ID]
  local member, again = ARGV[at + MEMBER], ARGV[at + AGAIN]
  local moved = 0
  if take_letter(dead, index, id, element) then
    local group = group_of(again)
    if member ~= '' and redis.call('HEXISTS', q.cycle, group) == 1 then
      replaced = replaced + 1
      drop_body(q, element)
      are_discarded(q, {id})
    elseif group and is_latest(group) and is_outdated(group, id_of(again)) then
      drop_body(q, element) -- it stays counted as dead where a batch counts it
      are_discarded(q, {id})
      redis.call('HINCRBY', q.counters, 'replaced', 1)
    else
      if member ~= '' then redis.call('HSET', q.cycle, group, id .. ' ' .. member) end
      has_revived(q, again)
      enter(q, again)
      revived[id_of(again)] = true
      moved = 1
    end
  end
  redriven = redriven + moved
  answer[#answer + 1] = moved
end
if redriven > 0 then redis.call('HINCRBY', q.counters, 'redriven', redriven) end
if replaced > 0 then redis.call('HINCRBY', q.counters, 'purged_dead', replaced) end
if redriven + replaced > 0 then answer_with(call, table.concat(answer)) end
return answer
