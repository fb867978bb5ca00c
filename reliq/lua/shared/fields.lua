-- Set many fields of a hash.

local AT_ONCE = 1000 -- values of one command; an even number
local LISTED = 512 -- fields, and 64 bytes a value: a hash with more is a table (hash-max-listpack-entries, hash-max-listpack-value)

-- `values`: field, value, field, value ... Until a hash is a table, Redis searches all of it for each new field: of a thousand
-- that takes 1.5 ms. A long value, which is replaced at once, makes it a table first.
local function set_fields(key, values)
  if #values > 2 * LISTED then redis.call('HSET', key, values[1], string.rep('-', 65)) end
  for from = 1, #values, AT_ONCE do
    redis.call('HSET', key, unpack(values, from, math.min(from + AT_ONCE - 1, #values)))
  end
end
