-- The two floors. They must be there before the first lock: who makes a row locks its floor.
INSERT IGNORE INTO lock_floors (source, token) VALUES ('holders', 0), ('tokens', 0);
