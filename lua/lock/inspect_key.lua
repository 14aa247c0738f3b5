-- Purpose: read a lock that is one key, in one step, and of a large key only its size.
-- KEYS[1]: the lock
-- ARGV[1]: the most bytes of an owner with its hold count
-- Returns: {type, PTTL, fields, bytes}; then the string, or the owner and its count of a hash with
--   one field, if they are at most that long; bytes is 0 for other types and for more fields
-- Errors: ERR arguments
if #KEYS ~= 1 or #ARGV ~= 1 or not tonumber(ARGV[1]) then
  return redis.error_reply('ERR arguments: lock; bytes')
end
local key, most = KEYS[1], tonumber(ARGV[1])
local kind = redis.call('TYPE', key).ok
local left = redis.call('PTTL', key)
if kind == 'string' then
  local bytes = redis.call('STRLEN', key)
  if bytes > most then
    return {kind, left, 0, bytes}
  end
  return {kind, left, 0, bytes, redis.call('GET', key)}
end
if kind ~= 'hash' then
  return {kind, left, 0, 0}
end
local fields = redis.call('HLEN', key)
if fields ~= 1 then
  return {kind, left, fields, 0}
end
local owner = redis.call('HKEYS', key)[1]
if not owner then -- its only field has expired
  return {kind, left, 0, 0}
end
local bytes = #owner + redis.call('HSTRLEN', key, owner)
if bytes > most then
  return {kind, left, fields, bytes}
end
return {kind, left, fields, bytes, owner, redis.call('HGET', key, owner)}
