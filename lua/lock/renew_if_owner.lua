-- Purpose: renew the lease of a lock, but only if the caller still owns it.
-- KEYS[1]: the lock
-- ARGV[1]: the owner
-- ARGV[2]: the lease, in ms
-- Returns: 1 renewed; 0 another owner's, untouched; -1 not held (expired or removed)
-- Errors: WRONGTYPE; ERR arguments
local function is_ms(text)
  return #text <= 15 and text:find('^[1-9]%d*$')
end
if #KEYS ~= 1 or #ARGV ~= 2 or ARGV[1] == '' or not is_ms(ARGV[2]) then
  return redis.error_reply('ERR arguments: lock; owner, ms')
end
local owner, lease_ms = ARGV[1], ARGV[2]

local holder = redis.call('GET', KEYS[1])
if not holder then
  return -1
end
if holder ~= owner then
  return 0
end
redis.call('PEXPIRE', KEYS[1], lease_ms)
return 1
