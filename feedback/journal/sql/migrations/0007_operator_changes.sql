-- What operators changed beside requests, whose moves are in `transitions`: schedules, limits, dead letters.

CREATE TABLE operator_changes (
    id     bigint      GENERATED ALWAYS AS IDENTITY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    what   text        NOT NULL,                       -- schedule, limits or dead_letter
    name   text        NOT NULL,                       -- of a schedule, a type or `workers`, or a number
    type   text,                                       -- NULL: about all types, or it is not known
    action text        NOT NULL,                       -- pause, resume, drop, set or resend
    detail text,                                       -- what it was changed to
    who    text        NOT NULL,
    why    text,
    CONSTRAINT operator_changes_pkey PRIMARY KEY (id)
);
