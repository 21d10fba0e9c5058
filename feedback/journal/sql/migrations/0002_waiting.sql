-- The waiting queue: rows of state 'waiting' run when they are due.

ALTER TABLE requests
    -- When a waiting row may be claimed: the later of not_before and the end of a claim's lease, so
    -- a claim whose holder died is due again by itself. NULL in every other state.
    ADD COLUMN due_at          timestamptz,
    -- Since when its (type, coalesce_key) has waited: the window restarts, up to a cap from here.
    ADD COLUMN window_start    timestamptz,
    ADD COLUMN used            int     NOT NULL DEFAULT 0,      -- attempts used up
    ADD COLUMN status_ttl      int,                             -- seconds; NULL = the default
    ADD COLUMN own_fingerprint boolean NOT NULL DEFAULT false,  -- made by the type: not for statuses
    -- The reference under which it coalesces; NULL where it never does.
    ADD COLUMN coalesce_key    text    COLLATE "C";

-- What is due, type by type.
CREATE INDEX requests_due ON requests (type, due_at, created_at) WHERE state = 'waiting';
-- One request waits per reference; claimed ones stand beside it.
CREATE UNIQUE INDEX requests_coalescing ON requests (type, coalesce_key)
    WHERE state = 'waiting' AND token IS NULL AND coalesce_key IS NOT NULL;
CREATE INDEX requests_coalescing_claims ON requests (type, coalesce_key)
    WHERE state = 'waiting' AND token IS NOT NULL AND coalesce_key IS NOT NULL;

-- The newest request of each reference that was started: older ones that arrive later have lost.
CREATE TABLE coalesced (
    produced_at  timestamptz NOT NULL,
    type         text        NOT NULL,
    coalesce_key text        COLLATE "C" NOT NULL,
    request_id   text        COLLATE "C" NOT NULL,
    CONSTRAINT coalesced_pkey PRIMARY KEY (type, coalesce_key)
);

-- What operators did to requests, and why.
CREATE TABLE transitions (
    id         bigint      GENERATED ALWAYS AS IDENTITY,
    at         timestamptz NOT NULL DEFAULT now(),
    run        int         NOT NULL,                   -- the request's, afterwards
    request_id text        COLLATE "C" NOT NULL,
    action     text        NOT NULL,                   -- retry, cancel, resolve or drop
    from_state text        NOT NULL,
    to_state   text        NOT NULL,
    who        text        NOT NULL,
    why        text,
    CONSTRAINT transitions_pkey PRIMARY KEY (id)
);
CREATE INDEX transitions_request ON transitions (request_id);

-- Result records on their way to the results topic. The time is that of the write, which comes
-- after the row's lock: of two records of one request the later one has the later time.
CREATE TABLE results (
    id         bigint      GENERATED ALWAYS AS IDENTITY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    request_id text        NOT NULL,
    type       text        NOT NULL,
    state      text        NOT NULL,
    code       text        NOT NULL,
    result     jsonb,
    CONSTRAINT results_pkey PRIMARY KEY (id)
);

ALTER TABLE dead_letters
    ADD COLUMN retried_at timestamptz,
    ADD COLUMN retried_as text;                        -- the request id that it was given

-- What came of late, for lists and for `--follow`.
CREATE INDEX dead_letters_open ON dead_letters (at) WHERE retried_at IS NULL;

-- What ended without an effect and waits for an operator: requests and messages in one list.
CREATE VIEW dead AS
SELECT 'request' AS kind, NULL::bigint AS id, r.id AS request_id, r.type, r.code AS reason,
       coalesce(r.error, r.reason) AS detail, r.finished_at AS at, r.topic, r.partition,
       r.kafka_offset, r.key, r.headers, r.payload
FROM requests r WHERE r.state = 'dead'
UNION ALL
SELECT 'message', d.id, d.request_id, NULL, d.reason, d.detail, d.at, d.topic, d.partition,
       d.kafka_offset, d.key, d.headers, d.payload
FROM dead_letters d WHERE d.retried_at IS NULL;
