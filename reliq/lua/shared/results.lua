-- What handlers have returned, by message id, in the last four keys of a call. Results are kept in two hashes: when the first
-- of `results` is older than they are to be kept, that hash becomes the earlier one, in place of the one before it. So a
-- result is kept for between one and two times as long. Of callers that keep them for different times the longest counts.
-- names of the keys and arguments (tools/generate_scripts.py)
local function named_outcomes(at) -- types not checked
  return {
    results = KEYS[at], earlier_results = KEYS[at + 1], awaited = KEYS[at + 2], answers = KEYS[at + 3],
  }
end
local OUTCOMES_SIZE = 4
-- end of the names

local function last_outcomes()
  return named_outcomes(#KEYS - OUTCOMES_SIZE + 1)
end

-- Fail before the first write if a key has a foreign type.
local function check_results()
  local q = last_outcomes()
  redis.call('HLEN', q.results)
  redis.call('HLEN', q.earlier_results)
  redis.call('STRLEN', q.awaited)
  redis.call('XLEN', q.answers)
end

-- Whether what a handler has returned is stored for a message.
local function has_returned(id)
  local q = last_outcomes()
  local stored = redis.call('HGET', q.results, id) or redis.call('HGET', q.earlier_results, id)
  return stored and string.find(stored, '^[jb]') ~= nil
end

-- Begin to store results: those that are too old become the earlier ones. No result goes before its time.
local function begin_results(kept_ms, now)
  -- Fields of `results`, no ids: the ms of its first result, for how many ms they are kept, and at which ms, at the earliest,
  -- it becomes the earlier hash. A former version wrote the first one only.
  local BEGUN, KEPT, TURN = '', ' ', '  '
  local q = last_outcomes()
  local begun, kept, turn = unpack(redis.call('HMGET', q.results, BEGUN, KEPT, TURN))
  kept, turn = tonumber(kept) or 0, tonumber(turn) or 0
  if begun and now > math.max(turn, begun + kept_ms) then
    redis.call('UNLINK', q.earlier_results)
    redis.call('RENAME', q.results, q.earlier_results)
    begun, kept, turn = false, 0, turn + kept -- the end of those
  end
  if begun and kept >= kept_ms then return end
  begun = begun or now
  turn = math.max(turn, begun + kept_ms)
  redis.call('HSET', q.results, BEGUN, begun, KEPT, kept_ms, TURN, turn)
  redis.call('PEXPIREAT', q.results, turn + kept_ms)
end

-- Store results, and tell those who wait for one. `some` has them from `first` to `last`: id, result, id ...
local function store_results(some, first, last)
  local q = last_outcomes()
  for from = first, last, 1000 do
    redis.call('HSET', q.results, unpack(some, from, math.min(from + 999, last)))
  end
  if last < first or redis.call('EXISTS', q.awaited) == 0 then return end
  local ids = {}
  for at = first, last, 2 do ids[#ids + 1] = some[at] end
  redis.call('XADD', q.answers, 'MAXLEN', '~', 1000, '*', 'ids', table.concat(ids, ' '))
  redis.call('PEXPIRE', q.answers, 3600000)
end
