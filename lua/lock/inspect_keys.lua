-- Purpose: read locks that are one key each, all in one step, and of a large key only its size.
-- KEYS: the locks, of one slot on a cluster
-- ARGV[1]: the most bytes of an owner with its hold count
-- Returns: of each key {type, PTTL, fields, bytes}; then the string, or the owner and its count of
--   a hash with one field, if they are at most that long; bytes is 0 for other types and for more
--   fields
-- Errors: ERR arguments
if #KEYS < 1 or #ARGV ~= 1 or not tonumber(ARGV[1]) then
  return redis.error_reply('ERR arguments: locks; bytes')
end
local call, most = redis.call, tonumber(ARGV[1])

local function inspect(key)
  local kind = call('TYPE', key).ok
  local left = call('PTTL', key)
  if kind == 'string' then
    local bytes = call('STRLEN', key)
    if bytes > most then
      return {kind, left, 0, bytes}
    end
    return {kind, left, 0, bytes, call('GET', key)}
  end
  if kind ~= 'hash' then
    return {kind, left, 0, 0}
  end
  local fields = call('HLEN', key)
  if fields ~= 1 then
    return {kind, left, fields, 0}
  end
  local owner = call('HKEYS', key)[1]
  if not owner then -- its only field has expired
    return {kind, left, 0, 0}
  end
  local bytes = #owner + call('HSTRLEN', key, owner)
  if bytes > most then
    return {kind, left, fields, bytes}
  end
  return {kind, left, fields, bytes, owner, call('HGET', key, owner)}
end

local found = {}
for i = 1, #KEYS do
  found[i] = inspect(KEYS[i])
end
return found
