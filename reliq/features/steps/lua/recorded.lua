-- recorded: read the record of a message.
--
-- KEYS  followed
-- ARGV  id
-- Returns {head, entry ..., signal ...}: the entries by their numbers, the signals in the order of their names in the head;
--         {} without a record
-- uses: records
-- names of the keys and arguments (tools/generate_scripts.py)
local followed = KEYS[1]
local id = ARGV[1]
-- end of the names
local count, _, _, names, head = read_head(followed, id)
if not head or head == ENDED then return {} end
local reply = {head}
for number = 1, count do reply[#reply + 1] = redis.call('HGET', followed, entry_field(id, number)) end
for name in string.gmatch(names, '\n([^\n]+)') do reply[#reply + 1] = redis.call('HGET', followed, signal_field(id, name)) end
return reply
