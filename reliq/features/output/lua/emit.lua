-- emit: append a chunk to the output of a message, if its consumer still holds the message.
--
-- KEYS  followed, config, output, outputs, lease, processing
-- ARGV  id, name, position, nonce, token, chunk, most: number, most_bytes: number
--       name, position: of the element, as name and place for report
--       token: of the call: one that is repeated at once appends nothing. Those of a handler are numbered, '#handler.number': none
--       of them appends twice, whenever and in which order they arrive
--       most, most_bytes: chunks of a message and their bytes, at most
-- Returns 'ok'; 'lost': the consumer does not hold the message; 'full': it has emitted so much. Then nothing was stored
-- uses: held, heads, keep
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, config, output, outputs, lease, processing = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id, name, position, nonce, token, chunk = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local most, most_bytes = tonumber(ARGV[7]), tonumber(ARGV[8])
-- end of the names
local MOST, LONGEST = 100, 1000 -- lower numbers, and characters of these: the lowest ones are given up
local DIGITS = 15 -- of a number that counts exactly; a token with more is a client's own

-- Returns what to remember after a call with this token; nil if it has come before. Of a handler that is the highest number, and behind
-- it the lower ones that have not come: `#handler.7,3,5,`.
local function unseen(latest, token)
  local handler, number = string.match(token, '^(#%x+)%.(%d+)$')
  if not handler or #number > DIGITS then return token ~= latest and token or nil end
  local former, highest, missing = string.match(latest, '^(#%x+)%.(%d+)(,.*)$')
  if former ~= handler then highest, missing = 0, ',' end
  number, highest = tonumber(number), tonumber(highest)
  if number <= highest then
    local left, found = string.gsub(missing, ',' .. string.format('%d', number) .. ',', ',', 1)
    if found == 0 then return nil end
    missing = left
  end
  for one = math.max(highest + 1, number - MOST), number - 1 do missing = missing .. string.format('%d,', one) end
  if #missing > LONGEST then missing = string.match(string.sub(missing, -LONGEST), ',.*$') end
  return handler .. string.format('.%d', math.max(highest, number)) .. missing
end

if redis.call('STRLEN', lease) == 0 or not held_element(processing, name, position) then return 'lost' end
local head = redis.call('HGET', followed, head_field(id))
local count, bytes, run, former, latest, kept_at, kept_then = string.match(
  head or '0 0 0 - - 0', '^(%d+) (%d+) (%d+) (%S+) (%S+) (%d+)/?(%d*)')
token = unseen(latest, token)
if not token then return 'ok' end
if count + 1 > most or bytes + #chunk > most_bytes then return 'full' end
local kept = kept_ms(config) -- wrong types are refused here, before the first write
redis.call('STRLEN', outputs)
if not head and redis.call('XLEN', output) > 0 then redis.call('UNLINK', output) end -- of another message, which had the same id
if former ~= nonce then run = string.format('%d', run + 1) end
local at = string.match(redis.call('XADD', output, '*', 'run', run, 'chunk', chunk), '^%d+')
kept_then = tonumber(kept_then) or 0 -- of a former version: not known
if at - kept_at > math.min(kept, kept_then) / 50 then -- not at each chunk; always if the stream had expired
  keep_for(kept * 1.02, output, outputs)
  kept_at, kept_then = at, kept
end
local times = kept_at .. '/' .. string.format('%.0f', kept_then)
local text = table.concat({count + 1, bytes + #chunk, run, nonce, token, times, 'open'}, ' ')
write_head(followed, config, id, text, not head)
return 'ok'
