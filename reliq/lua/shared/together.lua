-- Add many new messages with one command where `enter` of `place` and `index_add` of `index` have one for each: the
-- state is the same as if they were added one after another. Requires `index`, `place` and `fields`.

local function call_with(command, key, values)
  for from = 1, #values, AT_ONCE do
    redis.call(command, key, unpack(values, from, math.min(from + AT_ONCE - 1, #values)))
  end
end

-- Whether messages of this queue may be added together: no flow holds one of them back, and the queue knows of which
-- keys it is the home.
local function takes_together(q)
  return not q.flowing and (q.homes or not is_partition(q.config))
end

-- What `active` has in these fields, by field.
local function read_active(q, fields)
  local known = {}
  for from = 1, #fields, AT_ONCE do
    local last = math.min(from + AT_ONCE - 1, #fields)
    local values = redis.call('HMGET', q.active, unpack(fields, from, last))
    for place, value in ipairs(values) do known[fields[from + place - 1]] = value end
  end
  return known
end

-- The fields of `active` that decide whether these messages are ready, each once; and by place the slots of those
-- with a limit key.
local function fields_of(elements)
  local fields, slots, listed = {}, {}, {}
  for place, element in ipairs(elements) do
    local group = group_of(element)
    local field = group
    if group and is_laned(element) then
      field, slots[place] = '#' .. group, group .. ' ' .. id_of(element)
      fields[#fields + 1] = slots[place]
    end
    if field and not listed[field] then
      fields[#fields + 1] = field
      listed[field] = true
    end
  end
  return fields, slots
end

-- Make messages ready, in this order. Their places are noted since they have entered (`have_entered`).
local function make_ready_together(q, elements)
  local lists, is_empty = {messages = {}, high = {}, low = {}}, #elements > 0 and redis.call('LLEN', q.messages) == 0
  for _, element in ipairs(elements) do
    local list = lists[not is_empty and priority_of(element) or 'messages']
    list[#list + 1] = element
    is_empty = false
  end
  for name, list in pairs(lists) do call_with('LPUSH', q[name], list) end
  if #lists.high + #lists.low > 0 then
    redis.call('HSET', q.config, 'prioritised', 1)
    q.prioritised = true
  end
end

-- Add messages to the lines of their keys, in this order.
local function join_lines(q, elements)
  if #elements == 0 then return end
  local turn, members = redis.call('HINCRBY', q.counters, 'ordered', #elements) - #elements, {}
  for place, element in ipairs(elements) do
    local line = group_of(element) .. string.format('%016.0f', turn + place)
    members[2 * place - 1], members[2 * place] = 0, line .. element
    track(q, element, line)
  end
  call_with('ZADD', q.waiting, members)
end

-- Returns the function that gives a message its key, or its slot of a limit key: false if it has to wait in line. It
-- is called with each place in turn. Second, what is to be written to `active` then: field, value, field ...
local function giver_of_keys(q, elements, asked)
  local fields, slots = fields_of(elements)
  local active, changed = read_active(q, fields), {}
  local has_lines = q.homes and redis.call('ZCARD', q.waiting) > 0
  local lined = {} -- by key: whether its messages have to wait, whether or not it is free

  local function set(field, value)
    active[field] = value
    changed[#changed + 1] = field
    changed[#changed + 1] = value
  end

  local function is_lined(element, group)
    if lined[group] == nil then
      lined[group] = (has_lines or is_arriving(q, group, asked)) and waits_in_line(q, group, element, asked) or false
    end
    return lined[group]
  end

  local function give_slot(group, slot)
    local most, field = slots_of(q, group), '#' .. group
    if not most then return true end
    local held = tonumber(active[field] or 0)
    if held >= most or active[slot] then
      lined[group] = q.homes and true or false -- as for `waits_in_line`, now that this one waits
      return false
    end
    set(slot, 1)
    set(field, held + 1)
    return true
  end

  local function give_key(place)
    local element, slot = elements[place], slots[place]
    local group = group_of(element)
    if not group then return true end
    if is_lined(element, group) then return false end
    if slot then return give_slot(group, slot) end
    if active[group] then return false end
    set(group, id_of(element))
    return true
  end

  return give_key, changed
end

-- Add new messages without cycle whose keys have their home here, and of which none replaces another.
local function enter_together(q, elements, asked)
  local give_key, changed = giver_of_keys(q, elements, asked)
  local ready, waiting, weighted = {}, {}, false
  for place, element in ipairs(elements) do
    local list = give_key(place) and ready or waiting
    list[#list + 1] = element
    weighted = weighted or cost_of(element) ~= 1
  end
  if weighted then redis.call('HSET', q.config, 'weighted', 1) end
  set_fields(q.active, changed)
  join_lines(q, waiting)
  make_ready_together(q, ready)
end

-- Add messages to `delayed`, each at its ms, and to the index. `entries`: {id = , element = , delay = }
local function index_add_together(zset, index, now, entries)
  local members, scores = {}, {}
  for place, entry in ipairs(entries) do
    local score = score_of(now + entry.delay)
    members[2 * place - 1], members[2 * place] = score, entry.element
    scores[2 * place - 1], scores[2 * place] = entry.id, score
  end
  call_with('ZADD', zset, members)
  set_fields(index, scores)
end
