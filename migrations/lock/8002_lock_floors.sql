-- The highest token of all rows that were ever reaped from a table. A new row starts above it, so
-- tokens rise for ever although no row is kept for ever.
CREATE TABLE IF NOT EXISTS lock_floors (
  source VARBINARY(16) NOT NULL COMMENT 'holders or tokens: the table they were reaped from',
  token  BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (source)
) ENGINE = InnoDB COMMENT = 'where the tokens of new rows start';
