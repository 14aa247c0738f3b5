-- The users that tokens may be of. A user that is deleted, by plain SQL too, leaves a row with
-- user_id NULL. Replicas find it, revoke that user's tokens and remove the row. A trigger would
-- need a right that MySQL with a binary log gives to few accounts.
CREATE TABLE IF NOT EXISTS token_subjects (
  subject BIGINT UNSIGNED NOT NULL COMMENT 'id of the user, as tokens say it',
  user_id BIGINT UNSIGNED NULL COMMENT 'the same; NULL: the user was deleted',
  PRIMARY KEY (subject),
  KEY ix_token_subjects_user (user_id) COMMENT 'those of deleted users are read twice a second',
  CONSTRAINT fk_token_subjects_user FOREIGN KEY (user_id) REFERENCES users (id)
    ON DELETE SET NULL ON UPDATE SET NULL
) ENGINE = InnoDB COMMENT = 'users whose deletion revokes their tokens'
