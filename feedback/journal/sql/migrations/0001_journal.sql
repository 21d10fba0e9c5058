-- The journal. Every statement here runs in one transaction, with the journal's schema as the only
-- place where tables are made.

-- One row per request id. Columns stand in the order in which they waste no space: first those of
-- eight bytes, then those of four, then the rest.
CREATE TABLE requests (
    kafka_offset  bigint      NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),  -- when the journal first heard of it
    finished_at   timestamptz,                         -- NULL while it waits or runs
    produced_at   timestamptz NOT NULL,                -- the producer's time
    not_before    timestamptz,
    lease_until   timestamptz,                         -- of the claim, while state = 'running'
    attempt       int         NOT NULL DEFAULT 1,
    run           int         NOT NULL DEFAULT 1,      -- every start counts
    crashes       int         NOT NULL DEFAULT 0,      -- deaths of a worker while it ran
    resends       int         NOT NULL DEFAULT 0,      -- copies that were answered from this row
    partition     int         NOT NULL,
    id            text        COLLATE "C" NOT NULL,
    type          text        NOT NULL,
    state         text        NOT NULL,
    code          text        NOT NULL,
    effect        text        NOT NULL,                -- transaction, external or none
    topic         text        NOT NULL,
    fingerprint   bytea,                               -- NULL where nobody could make it
    key           bytea,
    token         text,                                -- of the claim; kept when it is finished
    reference     text,
    superseded_by text,
    result        jsonb,
    error         text,
    reason        text,
    payload       bytea,                               -- NULL once the request is done
    headers       jsonb,                               -- the same; [[name, value], ...]
    CONSTRAINT requests_pkey PRIMARY KEY (id)
);

-- Claims, for the sweep of those whose lease has run out.
CREATE INDEX requests_claims ON requests (lease_until) WHERE state = 'running';
-- What people have to look at. Few rows, so that it costs the others nothing.
CREATE INDEX requests_open_questions ON requests (finished_at) WHERE state IN ('in_doubt', 'dead');
-- Rows are written in the order of time, so ranges of time need no more than this.
CREATE INDEX requests_finished ON requests USING brin (finished_at)
    WITH (pages_per_range = 32, autosummarize = on);

-- Runs that did not succeed.
CREATE TABLE attempts (
    started_at timestamptz NOT NULL,
    ended_at   timestamptz NOT NULL,
    run        int         NOT NULL,
    request_id text        COLLATE "C" NOT NULL,
    code       text        NOT NULL,
    error      text,
    CONSTRAINT attempts_pkey PRIMARY KEY (request_id, run)
);

-- Messages that cannot become a request (malformed), or that carry the id of another (conflict).
CREATE TABLE dead_letters (
    id           bigint      GENERATED ALWAYS AS IDENTITY,
    kafka_offset bigint      NOT NULL,
    produced_at  timestamptz NOT NULL,                 -- the message's timestamp
    at           timestamptz NOT NULL DEFAULT now(),
    partition    int         NOT NULL,
    topic        text        NOT NULL,
    reason       text        NOT NULL CHECK (reason IN ('malformed', 'conflict')),
    request_id   text,                                 -- where the message has a valid one
    detail       text,                                 -- what is wrong, in words
    key          bytea,
    headers      jsonb,                                -- [[name, value], ...]; NULL = unreadable
    payload      bytea,
    CONSTRAINT dead_letters_pkey PRIMARY KEY (id),
    -- One message is one dead letter, however often it is read. The timestamp tells it from that of
    -- a topic that was deleted and made again.
    CONSTRAINT dead_letters_once UNIQUE (topic, partition, kafka_offset, produced_at)
);

CREATE INDEX dead_letters_request ON dead_letters (request_id);

-- How requests ended, by the minute.
CREATE TABLE counters (
    minute timestamptz NOT NULL,
    n      bigint      NOT NULL,
    type   text        NOT NULL,
    state  text        NOT NULL,
    code   text        NOT NULL,
    CONSTRAINT counters_pkey PRIMARY KEY (minute, type, state, code)
);
