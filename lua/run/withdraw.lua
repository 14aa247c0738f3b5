-- Purpose: withdraw the record of a run, so that another one may begin.
-- KEYS[1]: the record of the last run, a hash
-- ARGV[1]: the id of the run
-- Returns: 1 withdrawn; 0 it is not this run's
-- Errors: WRONGTYPE
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
