-- What backs off, by the hash of its key, as a key may be longer than an entry of an index: its row could
-- not be put off. Empty where it has no key, NULL where it does not back off: as one expression, so that
-- the planner does not take another index for this one.
DROP INDEX :schema.requests_backing_off;
CREATE INDEX requests_backing_off ON :schema.requests (
    sender,
    (CASE WHEN state = 'unsent' AND next_at IS NOT NULL THEN coalesce(sha256(key), '') END),
    seq
) WHERE (CASE WHEN state = 'unsent' AND next_at IS NOT NULL THEN coalesce(sha256(key), '') END)
    IS NOT NULL;
