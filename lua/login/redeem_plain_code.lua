-- Purpose: compare a try with the code of a phone, and use the code up if it is right. Of several
--   simultaneous right tries one uses it up.
-- KEYS[1]: the code of this phone, a string, as hm-dianping keeps it.
-- ARGV[1]: the try.
-- Returns: 1 right; 0 wrong, or there is no such code.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
return 1
