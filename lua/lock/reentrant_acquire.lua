-- Purpose: take a lock, or take it once more; one step, so nothing comes between.
-- KEYS[1]: the lock, a hash from its owner to the number of its holds
-- ARGV[1]: the owner; ARGV[2]: the lease of this hold in ms, which never shortens another hold's
-- Returns: the owner's holds, this one included; 0 somebody else's, untouched
local owner, lease = ARGV[1], ARGV[2]
if not owner or owner == '' then
  return redis.error_reply('ERR the owner is missing')
end
-- With more digits PEXPIRE might refuse it when the hold is counted already.
if not lease or not string.match(lease, '^[1-9]%d*$') or #lease > 15 then
  return redis.error_reply('ERR the lease is no number of ms')
end
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], owner) == 0 then
  return 0
end
local holds = redis.call('HINCRBY', KEYS[1], owner, 1)
if redis.call('PTTL', KEYS[1]) < tonumber(lease) then
  redis.call('PEXPIRE', KEYS[1], lease)
end
return holds
