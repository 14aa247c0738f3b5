-- Tokens that are refused before they end: those that were issued up to a moment. Every replica
-- reads this table twice a second. Rows go when no token can be as old as they are.
CREATE TABLE IF NOT EXISTS token_revocations (
  user_id    BIGINT UNSIGNED NOT NULL COMMENT 'whose tokens; 0: those of all users',
  not_before DATETIME(3) NOT NULL COMMENT 'UTC; tokens issued up to then are refused',
  made_at    DATETIME(3) NOT NULL COMMENT 'UTC, when that was decided',
  PRIMARY KEY (user_id),
  KEY ix_token_revocations_made (made_at) COMMENT 'recent ones are read, old ones removed'
) ENGINE = InnoDB COMMENT = 'revoked tokens; users may be deleted already, so no foreign key';
