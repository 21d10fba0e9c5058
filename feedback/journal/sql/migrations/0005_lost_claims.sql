-- How often whoever had claimed a waiting row was lost with it, begun or not, since it last came to an
-- end. Apart from `crashes`, which are deaths of workers that did run it.

ALTER TABLE requests ADD COLUMN lost_claims int NOT NULL DEFAULT 0;
