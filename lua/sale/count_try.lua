-- Purpose: count a try of an entry, or take back one that was no failure of the entry's.
-- KEYS[1]: the tries, a hash of entry to number; KEYS[2]: the sale, whose end is theirs
-- ARGV[1]: the entry; ARGV[2]: 1 or -1
-- Returns: how many tries are counted
local tries = redis.call('HINCRBY', KEYS[1], ARGV[1], ARGV[2])
local left = redis.call('PTTL', KEYS[2])
if tries < 1 or left < 1 then
  redis.call('HDEL', KEYS[1], ARGV[1])
  return 0
end
redis.call('PEXPIRE', KEYS[1], left)
return tries
