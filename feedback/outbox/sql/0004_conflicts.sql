-- What the consumers have refused as another request's copy has ended, and waits for somebody until it
-- is acknowledged or pruned.
CREATE INDEX finished_conflicts ON :schema.finished (seq)
    WHERE state = 'undeliverable' AND code = 'conflict';
