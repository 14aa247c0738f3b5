-- Purpose: store a one-time login code under its challenge, beside the phone's other codes.
-- KEYS[1]: the codes of this phone, a hash: challenge -> "<ends, ms>:<wrong tries>:<code>".
-- ARGV[1]: the challenge; ARGV[2]: the code; ARGV[3]: its life in ms; ARGV[4]: the most codes.
-- Returns: 0 stored; n > 0 refused: the phone has ARGV[4] codes, and the first ends in n ms.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local live, first = 0, nil
local kept = redis.call('HGETALL', KEYS[1])
for at = 1, #kept, 2 do
  local ends = tonumber(string.match(kept[at + 1], '^%d+'))
  if ends <= now then
    redis.call('HDEL', KEYS[1], kept[at])
  else
    live = live + 1
    first = math.min(first or ends, ends)
  end
end
if live >= tonumber(ARGV[4]) then
  return first - now
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f:0:%s', now + ARGV[3], ARGV[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 0
