-- search: look through a part of one place of a queue for messages that contain a text; read only.
--
-- KEYS  bodies, key
--       key: the list or sorted set that is looked through
-- ARGV  start: number, most: number, most_bytes: number, before: number, text, shown: number,
--       largest: number, around: number, sorted: flag
--       start: how many entries, from the newest on, are behind
--       before: bytes of an entry before its element, as in `waiting`
--       most: entries to look at; most_bytes: bytes to read, those of bodies included
--       shown: bytes of each body in its element; largest: bytes of a body apart that is still looked at
--       sorted: the key is a sorted set
--       around: bytes on both sides of the text, in the answer
-- Returns {where to go on, -1 at the end, entries looked at, bytes read, bodies too large to be looked at, then for
--         each match: its score, glimpse's number, glimpse, the text with what is around it in a body apart, or ''}
-- An element is searched as bytes: the caller checks which of its fields has the text.
-- uses: element, glimpse
-- names of the keys and arguments (tools/generate_scripts.py)
local bodies, key = KEYS[1], KEYS[2]
local start, most, most_bytes, before = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local text, shown, largest, around = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local sorted = ARGV[9] == '1'
-- end of the names
redis.call('HLEN', bodies) -- a wrong type is refused here
local width = sorted and 2 or 1

local function read(first, last)
  if sorted then return redis.call('ZREVRANGE', key, first, last, 'WITHSCORES') end
  return redis.call('LRANGE', key, first, last)
end

local matches, looked, bytes, unread = {}, 0, 0, 0

local function add(element, score, excerpt)
  local part, size = glimpse(element, shown)
  for _, one in ipairs({score, size, part, excerpt}) do matches[#matches + 1] = one end
end

-- Look at a body that is apart; returns the text with what is around it, nil without it.
local function in_body(element)
  local reference = body_of(element)
  if not reference then return nil end
  if size_of(element) - #element > largest then
    unread = unread + 1
    return nil
  end
  local body = redis.call('HGET', bodies, reference) or ''
  bytes = bytes + #body
  local first, last = string.find(body, text, 1, true)
  return first and string.sub(body, math.max(1, first - around), last + around)
end

local function look(element, score)
  looked, bytes = looked + 1, bytes + #element
  if element == BLANK then return end
  local excerpt = in_body(element)
  if excerpt or string.find(element, text, 1, true) then add(element, score, excerpt or '') end
end

local STEP = 50 -- entries read at once: a few large ones are enough

local function through()
  local at = start
  while looked < most and bytes < most_bytes do
    local some = read(at, at + STEP - 1)
    for place = 1, #some, width do
      if looked >= most or bytes >= most_bytes then return at end
      look(string.sub(some[place], before + 1), sorted and some[place + 1] or '0')
      at = at + 1
    end
    if #some < STEP * width then return -1 end
  end
  return at
end

local following = through()
forget_read(bytes)
return {following, looked, bytes, unread, unpack(matches)}
