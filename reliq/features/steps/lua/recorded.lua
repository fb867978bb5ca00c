-- recorded: read the record of a message.
--
-- KEYS  followed
-- ARGV  id
-- Returns {head, entry ..., signal ...}: the entries by their numbers, the signals in the order of their names in the head;
--         {} without a record
-- uses: records, reading
-- names of the keys and arguments (tools/generate_scripts.py)
local followed = KEYS[1]
local id = ARGV[1]
-- end of the names
return record_fields(followed, id)
