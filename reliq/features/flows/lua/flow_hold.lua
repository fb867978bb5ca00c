-- flow_hold: let those behind a member of a flow wait for another flow, which its handler opens, if its consumer still holds it.
--
-- KEYS  followed, lease, processing
-- ARGV  id, name, position, opened
--       name, position: of the element, as name and place for report
--       opened: the id of the other flow
-- Returns 'ok', also if none waits for the message; 'lost': the consumer does not hold it, and nothing was stored
-- uses: held, flow_fields
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, lease, processing = KEYS[1], KEYS[2], KEYS[3]
local id, name, position, opened = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- end of the names
local field = member_field(id)
local record = redis.call('HGET', followed, field) -- a wrong type is refused here, before the first write
if redis.call('STRLEN', lease) == 0 or not held_element(processing, name, position) then return 'lost' end
local head, behind = string.match(record or '', '^([^\n]*)(\n.*)$')
if head and not string.find(head, ' ' .. opened, 1, true) then redis.call('HSET', followed, field, head .. ' ' .. opened .. behind) end
return 'ok'
