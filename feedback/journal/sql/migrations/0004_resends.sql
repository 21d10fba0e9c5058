-- Where the message stands that was counted last in `resends`: topic/partition/offset. Whoever answers
-- it once more, not knowing whether the first answer was committed, does not count it again.

ALTER TABLE requests ADD COLUMN resent_from text;
