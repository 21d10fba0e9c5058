-- The request whose handler asked for this one (request.follow_up); NULL where a message or a schedule
-- brought it.

ALTER TABLE requests ADD COLUMN asked_by text COLLATE "C";
