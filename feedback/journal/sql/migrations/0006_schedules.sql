-- Requests that come by the clock. One row per schedule that an app has declared; whoever makes its
-- ticks into requests has this row locked and writes both in one transaction.

CREATE TABLE schedules (
    declared_at   timestamptz NOT NULL DEFAULT now(),  -- as it stands here
    decided_until timestamptz NOT NULL,                -- what was due until then is a request, or was skipped
    seen_at       timestamptz NOT NULL DEFAULT now(),  -- when an instance that declares it so has last looked
    last_tick     timestamptz,                         -- the latest that became a request
    paused_at     timestamptz,                         -- NULL unless an operator has paused it
    ticks         bigint      NOT NULL DEFAULT 0,      -- that became requests
    skipped       bigint      NOT NULL DEFAULT 0,      -- that did not, as nobody was there in time
    name          text        COLLATE "C" NOT NULL,
    type          text        NOT NULL,
    cron          text        NOT NULL,
    tz            text        NOT NULL,
    missed        text        NOT NULL,                -- latest, all or skip
    paused_by     text,
    paused_why    text,
    known         text[]      NOT NULL DEFAULT '{}',   -- what it was declared as, the oldest first
    CONSTRAINT schedules_pkey PRIMARY KEY (name)
);
