-- Purpose: compare a try with the code of its challenge, and use the code up on request. Of several
--   simultaneous right tries one uses it up.
-- KEYS[1]: the codes of this phone, a hash: challenge -> "<ends, ms>:<wrong tries>:<code>".
-- ARGV[1]: the challenge; ARGV[2]: the try; ARGV[3]: the most wrong tries; ARGV[4]: 1 uses it up.
-- Returns: 1 right; 0 wrong, or there is no such code. A wrong try counts against this challenge
--   only.
local kept = redis.call('HGET', KEYS[1], ARGV[1])
if not kept then
  return 0
end
local ends, tries, code = string.match(kept, '^(%d+):(%d+):(.*)$')
local clock = redis.call('TIME')
if tonumber(ends) <= clock[1] * 1000 + math.floor(clock[2] / 1000) then
  redis.call('HDEL', KEYS[1], ARGV[1])
  return 0
end
if code == ARGV[2] then
  if ARGV[4] == '1' then
    redis.call('HDEL', KEYS[1], ARGV[1])
  end
  return 1
end
if tries + 1 >= tonumber(ARGV[3]) then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%s:%d:%s', ends, tries + 1, code))
end
return 0
