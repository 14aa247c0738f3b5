-- Each number has one spelling, E.164; `seckill migrate` and `serve` normalise older rows. The
-- column is wide enough for a row that makes room for an older one: its number, `#` and its id.
ALTER TABLE users
  MODIFY phone VARCHAR(40) CHARACTER SET ascii NOT NULL COMMENT 'login name, in E.164',
  ADD COLUMN phone_state ENUM('unchecked', 'e164', 'set_aside') NOT NULL DEFAULT 'unchecked'
    COMMENT 'set_aside: not valid, or an older user has the number: no login finds it',
  ADD KEY ix_users_phone_state (phone_state, id) COMMENT 'those to check and those set aside';
