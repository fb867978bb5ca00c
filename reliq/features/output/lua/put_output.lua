-- put_output: store chunks that a message brings from another partition. Those that are there are passed over.
--
-- KEYS  followed, config, output, outputs
-- ARGV  id, head, chunks... [chunk_id, run, chunk]
-- Returns how many are new
-- uses: heads, keep
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, config, output, outputs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, head = ARGV[1], ARGV[2]
local CHUNKS, CHUNKS_STEP, CHUNK_ID, RUN, CHUNK = 3, 3, 0, 1, 2
-- end of the names
redis.call('STRLEN', outputs) -- wrong types are refused here, before the first write
redis.call('HLEN', config)
local is_new = redis.call('HEXISTS', followed, head_field(id)) == 0
local latest = redis.call('XREVRANGE', output, '+', '-', 'COUNT', 1)[1]

local function is_after(one, other)
  local ms, number = string.match(one, '^(%d+)-(%d+)$')
  local other_ms, other_number = string.match(other, '^(%d+)-(%d+)$')
  return tonumber(ms) > tonumber(other_ms) or ms == other_ms and tonumber(number) > tonumber(other_number)
end

local added = 0
for at = CHUNKS, #ARGV, CHUNKS_STEP do
  if not latest or is_after(ARGV[at + CHUNK_ID], latest[1]) then
    redis.call('XADD', output, ARGV[at + CHUNK_ID], 'run', ARGV[at + RUN], 'chunk', ARGV[at + CHUNK])
    added = added + 1
  end
end
keep_for(kept_ms(config), output, outputs)
write_head(followed, config, id, head, is_new)
return added
