-- What relays need. A relay holds the locks of some shards of a sender while it sends their rows:
-- two relays never have a key at once, and what dies gives its locks back with its connection.
-- Relays write the rows of their sender themselves.
CREATE TABLE :schema.shards (
    sender text     NOT NULL,
    shard  smallint NOT NULL,
    PRIMARY KEY (sender, shard)
);

-- Sends in a row that were refused.
ALTER TABLE :schema.requests ADD COLUMN failures int NOT NULL DEFAULT 0;

-- What is to be sent, and nothing else: its size is that of the backlog.
DROP INDEX :schema.requests_unsent;
CREATE INDEX requests_unsent ON :schema.requests (sender, shard, seq) WHERE state = 'unsent';

-- What backs off: rows of its key behind it wait.
CREATE INDEX requests_backing_off ON :schema.requests (sender, key, seq)
    WHERE state = 'unsent' AND next_at IS NOT NULL;

-- What waits for somebody.
CREATE INDEX requests_dead ON :schema.requests (seq)
    WHERE state IN ('unanswered', 'undeliverable');
