-- Latest wins: a new message replaces the one of its dedup key that waits. Their group is a line of its own, as that of an
-- ordering key: `active` has the one that is ready, being handled or to be tried again, `waiting` the newest behind it.
--
-- A debounced message is delayed. `burst` names it, and has the ms at which the first of its burst was sent. The key stays for
-- a while after the message is due: until a monitor has made that ready. Requires `index` and `place`.

local OVERDUE = 3600000 -- ms for which a message that is due is found while no monitor runs

-- Returns the message that waits for the end of its debounce, the start of its burst, and whether it is due by now; nil if no
-- message does. A message that waits for a retry holds its key, and is not meant.
local function debounced(q, delayed, index, entry, now)
  local since, id = string.match(redis.call('GET', entry.burst) or '', '^(%d+) (.+)$')
  local element = id and index_find(delayed, index, id)
  if not element or group_of(element) ~= entry.group or redis.call('HGET', q.active, entry.group) == id then return end
  return element, tonumber(since), tonumber(redis.call('HGET', index, id)) <= now
end

-- The message of the same dedup key that waits, if its place can be found.
local function find_older(q, delayed, index, entry, now)
  local older, _, is_due = debounced(q, delayed, index, entry, now)
  if older and not is_due then return older end
  local first = first_in_line(q, entry.group)
  return first and element_in_line(first)
end

-- Add a message. It takes the place of one that waits for the end of another; else it is delayed if it is debounced. One that is
-- due is made ready first: no monitor has done it yet, and would put it behind this one.
local function enter_latest(q, delayed, index, entry, now)
  local older, since, is_due = debounced(q, delayed, index, entry, now)
  if older then index_take(delayed, index, id_of(older)) end
  if is_due then
    redis.call('HINCRBY', q.counters, 'promoted', 1)
    enter(q, older)
    since = nil
  elseif older then
    supersede(q, older)
  end
  if entry.debounce == 0 or first_in_line(q, entry.group) then return enter(q, entry.element) end
  local due = math.min(now + entry.debounce, (since or now) + entry.at_most)
  index_add(delayed, index, due, entry.id, entry.element)
  local kept = string.format('%.0f', math.max(1, due - now) + OVERDUE)
  redis.call('SET', entry.burst, string.format('%.0f %s', since or now, entry.id), 'PX', kept)
end
