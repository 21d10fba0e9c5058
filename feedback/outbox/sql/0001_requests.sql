-- The outbox of a producer. All names are whole, so that these statements can stand in the
-- migrations of any tool.

-- Requests whose end is not known. A row comes, is sent, and goes to `finished`: the table is as
-- large as what is open, and is cleaned long before a fifth of it has changed.
CREATE TABLE :schema.requests (
    seq         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- the order of a key
    created_at  timestamptz NOT NULL,              -- the producer's time: the message's timestamp
    next_at     timestamptz,                       -- not to be sent again before; NULL: at once
    sent_at     timestamptz,                       -- when a broker last confirmed it
    not_before  timestamptz,
    sends       int         NOT NULL DEFAULT 0,
    shard       smallint    NOT NULL,              -- of sender and key; a relay takes whole shards
    id          text        COLLATE "C" NOT NULL UNIQUE,
    type        text        NOT NULL,
    sender      text        NOT NULL,
    state       text        NOT NULL DEFAULT 'unsent'
                CHECK (state IN ('unsent', 'sent', 'unanswered', 'undeliverable')),
    fingerprint bytea       NOT NULL,
    key         bytea,                             -- NULL: the id
    payload     bytea       NOT NULL,
    headers     jsonb       NOT NULL,              -- [[name, value in base64], ...], without id and type
    reference   text,
    code        text,                              -- why it is unanswered or undeliverable
    error       text
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_analyze_scale_factor = 0.01,
    autovacuum_vacuum_insert_scale_factor = 0.05
);

-- What is to be sent, and nothing else: its size is that of the backlog.
CREATE INDEX requests_unsent ON :schema.requests (shard, seq) WHERE state = 'unsent';

-- Requests whose end is known; their payloads are gone.
CREATE TABLE :schema.finished (
    seq         bigint      NOT NULL,
    created_at  timestamptz NOT NULL,
    sent_at     timestamptz,
    settled_at  timestamptz NOT NULL,
    sends       int         NOT NULL,
    id          text        COLLATE "C" PRIMARY KEY,
    type        text        NOT NULL,
    sender      text        NOT NULL,
    state       text        NOT NULL,              -- as the consumers reported it
    code        text,
    fingerprint bytea       NOT NULL,
    key         bytea,
    reference   text,
    result      jsonb,
    error       text
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_analyze_scale_factor = 0.01
);

CREATE INDEX finished_settled_at ON :schema.finished (settled_at);

-- Names that `sender` may have; `oncepool outbox migrate` adds those that are configured.
CREATE TABLE :schema.senders (
    name text PRIMARY KEY
);

INSERT INTO :schema.senders (name) VALUES ('default');

CREATE VIEW :schema.all_requests AS
SELECT id, type, sender, state, code, NULL::jsonb AS result, error, sends, created_at, sent_at,
    NULL::timestamptz AS settled_at, next_at, not_before, key, reference, seq
FROM :schema.requests
UNION ALL
SELECT id, type, sender, state, code, result, error, sends, created_at, sent_at,
    settled_at, NULL, NULL, key, reference, seq
FROM :schema.finished;

-- Wakes the relays at the commit, on the channel that has the schema's name. Commits that notify
-- take turns: where that is too dear, disable the trigger, and relays look by themselves.
CREATE FUNCTION :schema.wake_relays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(TG_TABLE_SCHEMA, '');
    RETURN NULL;
END
$$;

CREATE TRIGGER requests_added AFTER INSERT ON :schema.requests
    FOR EACH STATEMENT EXECUTE FUNCTION :schema.wake_relays();
