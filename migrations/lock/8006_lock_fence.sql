-- The highest token that was shown to each protected resource: whoever comes with a lower one has
-- lost its lock without knowing. A row goes with its resource.
CREATE TABLE IF NOT EXISTS lock_fence (
  name  VARBINARY(512) NOT NULL COMMENT 'of the resource',
  token BIGINT UNSIGNED NOT NULL COMMENT 'never falls',
  PRIMARY KEY (name)
) ENGINE = InnoDB COMMENT = 'highest token seen by each resource';
