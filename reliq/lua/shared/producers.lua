-- The latest call of each producer: recognizes a call that is repeated after a lost answer. producer '' = none.

local function carried_out(producers, producer, sequence)
  local last = producer ~= '' and redis.call('HGET', producers, producer)
  return last and sequence <= tonumber(string.match(last, '^%d+')) or false
end

local function remember(producers, producer, sequence, now)
  if producer ~= '' then redis.call('HSET', producers, producer, string.format('%.0f %.0f', sequence, now)) end
end
