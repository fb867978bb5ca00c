-- arrive: begin a transaction that stores large bodies, and ends with the script that enqueues their messages.
--
-- KEYS  1 producers  2.. bodies, of each queue
-- ARGV  1 producer  2 sequence  3.. references of the bodies that follow
-- Returns 1 if the call was carried out before, else 0
-- The messages of a call that was carried out before may be handled by now. So the references that are not stored are
-- noted, and the script at the end of the transaction deletes what was stored under them.
-- uses: producers
for at = 2, #KEYS do redis.call('HLEN', KEYS[at]) end -- wrong types are refused here, before the first write
if not carried_out(KEYS[1], ARGV[1], tonumber(ARGV[2])) then return 0 end
for at = 2, #KEYS do
  local missing = {}
  for place = 3, #ARGV do
    if redis.call('HEXISTS', KEYS[at], ARGV[place]) == 0 then missing[#missing + 1] = ARGV[place] end
  end
  if #missing > 0 then redis.call('HSET', KEYS[at], '', table.concat(missing)) end
end
return 1
