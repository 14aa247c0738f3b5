-- Purpose: renew the leases of many locks that are hashes of owner to hold count.
-- KEYS: the locks
-- ARGV: for each lock its owner, then its lease in ms
-- Returns: for each lock 1 it lasts for the lease at least; 0 it is not the owner's
-- Errors: ERR arguments
local function is_ms(text)
  local ms = tonumber(text)
  return ms and ms >= 1 and ms <= 1e15 and ms % 1 == 0
end
local sound = #KEYS > 0 and #ARGV == 2 * #KEYS
for i = 2, #ARGV, 2 do
  sound = sound and ARGV[i - 1] ~= '' and is_ms(ARGV[i])
end
if not sound then
  return redis.error_reply('ERR arguments: locks; for each its owner and lease')
end
local answers = {}
for i, lock in ipairs(KEYS) do
  local lease = tonumber(ARGV[2 * i])
  -- A key of another type is not the owner's: one such must not keep the others from being renewed.
  if redis.pcall('HEXISTS', lock, ARGV[2 * i - 1]) == 1 then
    -- Never less than another hold of the owner counts on; always written, for replicas to confirm.
    redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), lease))
    answers[i] = 1
  else
    answers[i] = 0
  end
end
return answers
