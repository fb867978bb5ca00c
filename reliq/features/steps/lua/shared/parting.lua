-- A message leaves its consumer before it is handled, to come back later. Requires `place` and `holders`.

-- Whether a message was cancelled while its consumer had it, which learns it with its next heartbeat only.
local function was_cancelled(told, id, sent)
  local at = redis.call('HGET', told, id)
  return at and tonumber(at) >= tonumber(sent)
end

-- `frees`: other messages of its ordering key go on meanwhile. The slot of a limit key is always given up, the place of the
-- latest never: when it comes back it would replace a newer one.
local function part_from(q, slots, processing, element, frees, uncounted)
  redis.call('LREM', processing, -1, element)
  note_held(q, slots, processing)
  if uncounted then redis.call('HINCRBY', q.counters, 'claimed', 1) end
  if not q.keyed then return end
  if is_member(q, element) then
    leave_round(q, group_of(element))
  elseif is_laned(element) then
    release_slot(q, element)
  elseif frees and not is_latest(group_of(element) or '') then
    release_key(q, element)
  end
end
