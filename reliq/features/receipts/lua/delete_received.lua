-- delete_received: delete messages in flight; they were handled.
--
-- KEYS  places, received, receipts, early
-- ARGV  late: flag, handles... [name, key_group]
--       late: also one whose time was over, as long as no other consumer has taken it
--       key_group: of the message's key, '' = none
-- Returns one letter for each: d = done, e = its time was over, and the message is ready, or in flight again; u = it is not
--         in flight
-- A message that is ready again is looked for by its id, at the ends of the ready lists and in the line of its key.
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, flights
-- names of the keys and arguments (tools/generate_scripts.py)
local received, receipts, early = KEYS[14], KEYS[15], KEYS[16]
local late = ARGV[1] == '1'
local PLACES, HANDLES, HANDLES_STEP, NAME, KEY_GROUP = 1, 2, 2, 0, 1
-- end of the names
local q = places(PLACES)
check_flights(received, receipts, early)
local now = now_ms()

local names = {}
for at = HANDLES, #ARGV, HANDLES_STEP do names[#names + 1] = ARGV[at + NAME] end
local records = records_of(receipts, names)

-- What is deleted leaves flight at the end, in one command a key.
local codes, done, ready, gone = {}, {}, {}, {}
local function land_later(field)
  local record = records[field]
  done[#done + 1] = {string.sub(record, #FIRST_TURN + 1), string.sub(record, 1, #FIRST_TURN)}
  gone[#gone + 1] = field
  records[field] = false
end

for at = HANDLES, #ARGV, HANDLES_STEP do
  local name = ARGV[at + NAME]
  local id, code = id_of(name), 'u'
  local field = records[name] and name or records[id] and id
  local later = field and not is_named(records[field], name)
  local until_ms = field and tonumber(redis.call('ZSCORE', received, field) or nil)
  if not until_ms then field = nil end
  if field and (until_ms > now and not later or until_ms <= now and late) then
    land_later(field)
    code = 'd'
  elseif field then
    code = late and 'u' or 'e'
  else
    local list, place, element = find_ready(q, id)
    if list and late then -- its place stays, as that of a cancelled one
      redis.call('LSET', list, place, BLANK)
      redis.call('HINCRBY', q.counters, 'blanks', 1)
      ready[#ready + 1] = element
      code = 'd'
    elseif list or is_waiting(q, id, ARGV[at + KEY_GROUP]) then
      code = 'e'
    end
  end
  codes[#codes + 1] = code
end
land_all(received, receipts, gone)
finish_flights(q, early, done, 'acked')
for _, element in ipairs(ready) do leave_queue(q, element) end
have_left(q, ready, 'acked')
if #ready > 0 then redis.call('HINCRBY', q.counters, 'acked', #ready) end
return table.concat(codes)
