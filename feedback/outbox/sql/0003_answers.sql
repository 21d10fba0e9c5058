-- What follows a request until its end is known.
ALTER TABLE :schema.requests
    ADD COLUMN tries int NOT NULL DEFAULT 0,  -- sends in a row that nobody has answered
    ADD COLUMN seen  text;                    -- the order of the last status that asked for another send

-- What an answer may still come to; what was sent last is looked at most often.
CREATE INDEX requests_sent ON :schema.requests (sender, sent_at, seq)
    WHERE state IN ('sent', 'unanswered');

-- Answers for the producer's own work, written with the end of their requests where a relay was told
-- to. The producer deletes what it has worked on, in the transaction of that work.
CREATE TABLE :schema.inbox (
    n          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    id         text        COLLATE "C" NOT NULL,
    type       text        NOT NULL,
    sender     text        NOT NULL,
    state      text        NOT NULL,
    code       text,
    reference  text,
    result     jsonb,
    error      text
) WITH (autovacuum_vacuum_scale_factor = 0.01);
