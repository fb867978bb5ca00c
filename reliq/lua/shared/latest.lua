-- Latest wins: a new message replaces the one of its dedup key that waits. Their group is a line of its own, as that of an
-- ordering key: `active` has the one that is ready, being handled or to be tried again, `waiting` the newest behind it.
--
-- A debounced message is delayed. `burst` names it, and has the ms at which the first of its burst was sent; the key expires
-- when the message is due. Requires `index` and `place`.

-- Returns the message that a debounce delays, and the start of its burst; nil if there is none.
local function debounced(delayed, index, entry)
  local since, id = string.match(redis.call('GET', entry.burst) or '', '^(%d+) (.+)$')
  local element = id and index_find(delayed, index, id)
  if element and group_of(element) == entry.group then return element, tonumber(since) end
end

-- The message of the same dedup key that waits, if its place can be found.
local function find_older(q, delayed, index, entry)
  local older = debounced(delayed, index, entry)
  local first = not older and first_in_line(q, entry.group)
  return older or first and element_in_line(first)
end

-- Add a message. It takes the place of one that waits for the end of another; else it is delayed if it is debounced.
local function enter_latest(q, delayed, index, entry, now)
  local older, since = debounced(delayed, index, entry)
  if older then
    index_take(delayed, index, id_of(older))
    supersede(q, older)
    release_key(q, older) -- a retry holds its key, and would be here only if the clock was set back
  end
  if entry.debounce == 0 or first_in_line(q, entry.group) then return enter(q, entry.element) end
  local due = math.min(now + entry.debounce, (since or now) + entry.at_most)
  index_add(delayed, index, due, entry.id, entry.element)
  redis.call('SET', entry.burst, string.format('%.0f %s', since or now, entry.id), 'PX', math.max(1, due - now))
end
