-- The request whose handler asked for this one (request.follow_up); NULL where a message or a schedule
-- brought it. The index has follow-ups alone: all others cost it nothing.

ALTER TABLE requests ADD COLUMN asked_by text COLLATE "C";

CREATE INDEX requests_asked_by ON requests (asked_by, id) WHERE asked_by IS NOT NULL;
