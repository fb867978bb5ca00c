-- The moments of a message: it enters a queue, moves in it, leaves it, dies, comes back. Features note what happens to messages, in
-- queues where config asks for it: `track`, `history`, `batched`, `recorded`, `emitted`, `flowing`. A feature's part is in lua/shared/moments.lua of its slice, which
-- the script gets after this file: it adds a function that returns functions by the names of the moments that concern the feature. Requires `now` and `element`.

local makers = {} -- of the features' parts
local parts -- made by the first moment that is told: in most queues none is, and each function costs time
local enter -- of `place`: adds a message to those that are ready, or to the line of its key

-- Make the parts. A feature's script calls this before functions that its part defines.
local function make_parts()
  if parts then return end
  parts = {}
  for place, make in ipairs(makers) do parts[place] = make() end
end

local function each_part(moment, q, ...)
  make_parts()
  for _, part in ipairs(parts) do
    if part[moment] then part[moment](q, ...) end
  end
end

-- Note an event of a message, in queues with a history.
local function note(q, event, element, detail)
  if q.history_for then each_part('note', q, event, element, detail) end
end

-- Note where a message is now: the beginning of its member of `waiting`.
local function track(q, element, line)
  if q.track then each_part('track', q, element, line) end
end

-- Note that a message is ready.
local function track_ready(q, element)
  if q.track then each_part('track_ready', q, element) end
end

-- Whether new messages are noted: those of a batch always are. `counted`: as of `check_entering`.
local function are_noted(q, elements, counted)
  if q.follows or counted and counted ~= '' then return true end
  for _, element in ipairs(elements) do
    if batch_of(element) then return true end
  end
  return false
end

-- Look at new messages. Fails before the first write if a key with notes of them has a foreign type. `counted`: a text of
-- batches and numbers, of messages that are not among these elements.
local function check_entering(q, elements, counted)
  q.noted = are_noted(q, elements, counted)
  if q.noted then each_part('check_entering', q, elements, counted) end
end

-- Note new messages, before they are put into their places.
local function have_entered(q, elements)
  local noted = q.noted
  if noted == nil then noted = are_noted(q, elements) end
  if noted then each_part('have_entered', q, elements) end
end

-- Note messages that have left the queue for good. `event`: acked, cancelled, purged, replaced, ... `counted`: a text of batches
-- and numbers, which the caller knows of these messages, or instead of them.
local function have_left(q, elements, event, counted)
  if q.follows then each_part('have_left', q, elements, event, counted) end
end

-- Note messages that a monitor has enqueued in another partition, where they have entered.
local function have_gone_home(q, elements)
  if q.follows then each_part('have_gone_home', q, elements) end
end

-- Note a message that has become a dead letter.
local function has_died(q, element, counter)
  if q.follows then each_part('has_died', q, element, counter) end
end

-- Note a dead letter that has come back.
local function has_revived(q, element)
  if q.follows then each_part('has_revived', q, element) end
end

-- Note a member of a cycle whose visit is over: the next one is another run of it.
local function was_visited(q, element)
  if q.recorded then each_part('was_visited', q, element) end
end

-- Note dead letters that were deleted, by their ids.
local function are_discarded(q, ids)
  if q.recorded or q.emitted or q.flowing then each_part('are_discarded', q, ids) end
end

-- Whether a feature lets a message wait that was about to be ready, and has put it elsewhere.
local function is_held_back(q, element)
  if not q.flowing then return false end
  make_parts()
  for _, part in ipairs(parts) do
    if part.holds_back and part.holds_back(q, element) then return true end
  end
  return false
end
