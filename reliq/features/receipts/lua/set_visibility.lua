-- set_visibility: set for how long messages stay in flight from now on; for 0 ms they become visible.
--
-- KEYS  places, received, receipts, early, call?
--       call: has the answer of a call that is repeated, kept where messages became visible: another one may have them by then
-- ARGV  late: flag, changes... [name, visible, key_group]
--       late: also of a message that was received again since
--       visible: ms
--       key_group: of the message's key, '' = none
-- Returns one letter for each: d = done, e = its time was over, and the message is visible; u = it is not in flight
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, calls, flights, full
-- names of the keys and arguments (tools/generate_scripts.py)
local received, receipts, early, call = KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local late = ARGV[1] == '1'
local PLACES, CHANGES, CHANGES_STEP, NAME, VISIBLE, KEY_GROUP = 1, 2, 3, 0, 1, 2
-- end of the names
local q = places(PLACES)
check_flights(received, receipts, early)
local before = answer_before(call)
if before then return before end
pass_when_full(receipts)
local now = now_ms()
local codes, landed = {}, {}
for at = CHANGES, #ARGV, CHANGES_STEP do
  local name, visible = ARGV[at + NAME], tonumber(ARGV[at + VISIBLE])
  local field, until_ms, later = find_flight(received, receipts, name)
  local code = 'd'
  if not field then
    local id = id_of(name)
    code = (find_ready(q, id) or is_waiting(q, id, ARGV[at + KEY_GROUP])) and 'e' or 'u'
  elseif later and not late then
    code = 'u'
  elseif until_ms <= now then
    code = 'e'
  elseif visible > 0 then
    redis.call('ZADD', received, string.format('%.0f', now + visible), field)
  else
    local element, turn = land(received, receipts, field)
    landed[#landed + 1] = {element, turn}
  end
  codes[#codes + 1] = code
end
make_visible(q, early, landed)
if #landed > 0 then answer_with(call, table.concat(codes)) end
return table.concat(codes)
