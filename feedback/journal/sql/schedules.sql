-- Schedules and their ticks, for feedback/journal/schedules.py and feedback/operations/schedules.py.
-- {schema} is the quoted name of the journal's schema. Times are the database's.

-- name: find_schedules
SELECT s.name, s.type, s.cron, s.tz, s.missed, s.decided_until, s.seen_at, s.paused_at IS NOT NULL,
       s.known
FROM {schema}.schedules s WHERE s.name = ANY (%(names)s::text[]) ORDER BY s.name

-- name: declare_schedules
INSERT INTO {schema}.schedules (name, type, cron, tz, missed, decided_until, known)
SELECT name, type, cron, tz, missed, decided_until, ARRAY[known]
FROM unnest(
    %(names)s::text[], %(types)s::text[], %(crons)s::text[], %(tzs)s::text[], %(missed)s::text[],
    %(decided)s::timestamptz[], %(known)s::text[]
) AS u(name, type, cron, tz, missed, decided_until, known)
ORDER BY name
ON CONFLICT (name) DO NOTHING

-- name: update_schedule
-- Of what it was declared as the latest are kept: instances of all others are long gone.
UPDATE {schema}.schedules
SET type = %(type)s, cron = %(cron)s, tz = %(tz)s, missed = %(missed)s,
    decided_until = %(decided_until)s, seen_at = clock_timestamp(),
    declared_at = CASE WHEN %(declares)s THEN clock_timestamp() ELSE declared_at END,
    known = CASE WHEN %(known)s::text = ANY (known) THEN known
                 ELSE (known || %(known)s::text)[greatest(1, cardinality(known) - 48):] END,
    last_tick = greatest(last_tick, %(last_tick)s), ticks = ticks + %(ticks)s,
    skipped = skipped + %(skipped)s
WHERE name = %(name)s

-- name: insert_ticks
-- Requests that wait for nobody but a worker. One that is there already was made before.
INSERT INTO {schema}.requests (
    id, type, state, code, effect, topic, partition, kafka_offset, produced_at, not_before, due_at,
    run, payload, headers
)
SELECT id, type, 'waiting', %(code)s, 'transaction', %(topic)s, -1, -1,
       least(at, statement_timestamp()), statement_timestamp(), statement_timestamp(), 0, payload,
       headers::jsonb
FROM unnest(
    %(ids)s::text[], %(types)s::text[], %(at)s::timestamptz[], %(payloads)b::bytea[],
    %(headers)s::text[]
) AS u(id, type, at, payload, headers)
ORDER BY id
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: find_taken_ids
-- Those that stand for anything but the tick. A done row has no headers, but came by no topic, then.
SELECT r.id
FROM {schema}.requests r
JOIN unnest(%(ids)s::text[], %(at)s::timestamptz[]) AS u(id, at) ON r.id = u.id
WHERE r.topic <> %(topic)s OR r.produced_at <> u.at

-- name: add_tick_letter
-- It came from nowhere, so that the time alone tells it from others. There is one of a tick: one that
-- was retried has run, whoever makes the same tick later.
INSERT INTO {schema}.dead_letters (
    request_id, reason, detail, topic, partition, kafka_offset, produced_at, headers, payload
)
SELECT %(id)s, %(reason)s, %(detail)s, %(topic)s, -1, -1, clock_timestamp(), %(headers)s::jsonb,
       %(payload)s
WHERE NOT EXISTS (
    SELECT FROM {schema}.dead_letters d
    WHERE d.request_id = %(id)s AND d.reason = %(reason)s AND d.detail = %(detail)s
      AND d.payload IS NOT DISTINCT FROM %(payload)s
)

-- name: list_schedules
SELECT name, type, cron, tz, missed, declared_at, decided_until, seen_at,
       clock_timestamp() AS now, last_tick, ticks, skipped, paused_at, paused_by, paused_why
FROM {schema}.schedules WHERE %(names)s::text[] IS NULL OR name = ANY (%(names)s)
ORDER BY name

-- name: pause_schedules
-- One that is paused stays as who has paused it said, and when; of another pause the audit tells.
UPDATE {schema}.schedules
SET paused_at = coalesce(paused_at, clock_timestamp()),
    paused_by = CASE WHEN paused_at IS NULL THEN %(who)s ELSE paused_by END,
    paused_why = CASE WHEN paused_at IS NULL THEN %(why)s ELSE paused_why END
WHERE name = ANY (%(names)s) RETURNING name, type

-- name: resume_schedules
-- From now on: what was due during the pause, or what a clock that was ahead has decided, is not
-- made up for. Its ids keep what was made from being made once more.
UPDATE {schema}.schedules
SET decided_until = clock_timestamp(), paused_at = NULL, paused_by = NULL, paused_why = NULL
WHERE name = ANY (%(names)s) AND (paused_at IS NOT NULL OR decided_until > clock_timestamp())
RETURNING name, type

-- name: drop_schedules
DELETE FROM {schema}.schedules
WHERE name = ANY (%(names)s) AND seen_at < clock_timestamp() - %(abandoned)s
RETURNING name, type
