-- Statements of the waiting queue: rows of state 'waiting' on their way to an instance and back.
-- {schema} is the quoted name of the journal's schema; feedback/journal/claims.py says what each is for.

-- name: due_types
-- The first due time of each type, by a walk from type to type along requests_due: as many index
-- look-ups as there are types, up to a number, however many rows wait. In the order of the walk.
WITH RECURSIVE types AS (
    (SELECT 1 AS n, type, due_at FROM {schema}.requests
     WHERE state = 'waiting' AND type > %(after)s ORDER BY type, due_at LIMIT 1)
    UNION ALL
    SELECT types.n + 1, next.type, next.due_at
    FROM types, LATERAL (
        SELECT r.type, r.due_at FROM {schema}.requests r
        WHERE r.state = 'waiting' AND r.type > types.type ORDER BY r.type, r.due_at LIMIT 1
    ) next
    WHERE types.n < %(most)s
)
SELECT type, extract(epoch FROM due_at - statement_timestamp())::float8 FROM types ORDER BY n

-- name: claim_due
-- statement_timestamp(), as a volatile clock_timestamp() would keep the index from being used; and
-- ctid = ANY, as a join on id becomes a scan of the table.
-- A row whose reference has a live claim, or one that is newer, waits behind it.
WITH due AS MATERIALIZED (
    SELECT found.ctid
    FROM unnest(%(types)s::text[], %(shares)s::int[]) AS wanted(type, share), LATERAL (
        SELECT r.ctid FROM {schema}.requests r
        WHERE r.state = 'waiting' AND r.type = wanted.type AND r.due_at <= statement_timestamp()
          AND (r.coalesce_key IS NULL OR NOT EXISTS (
              SELECT FROM {schema}.requests c
              WHERE c.state = 'waiting' AND c.token IS NOT NULL AND c.coalesce_key IS NOT NULL
                AND c.type = r.type AND c.coalesce_key = r.coalesce_key AND c.id <> r.id
                AND (c.due_at > statement_timestamp()
                     OR (c.produced_at, c.created_at, c.id) > (r.produced_at, r.created_at, r.id))
          ))
        ORDER BY r.due_at, r.created_at LIMIT wanted.share FOR UPDATE SKIP LOCKED
    ) found
)
UPDATE {schema}.requests r
SET token = %(token)s, run = r.run + 1, crashes = r.crashes + (r.token IS NOT NULL)::int,
    lease_until = statement_timestamp() + make_interval(secs => %(lease)s),
    due_at = statement_timestamp() + make_interval(secs => %(lease)s)
WHERE r.ctid = ANY (ARRAY(SELECT ctid FROM due))
RETURNING r.id, r.type, r.topic, r.produced_at, r.key, r.payload, r.headers::text, r.crashes,
          r.coalesce_key, coalesce(r.not_before, r.created_at), r.created_at

-- name: start_coalesced
-- Locks the reference in any case, so that of two instances that claim two of its rows at once the
-- second one sees the first one's claim in its next statement.
INSERT INTO {schema}.coalesced AS c (type, coalesce_key, produced_at, request_id)
SELECT DISTINCT ON (type, coalesce_key) type, coalesce_key, produced_at, id
FROM {schema}.requests WHERE id = ANY (%(ids)s) AND token = %(token)s
ORDER BY type, coalesce_key, produced_at DESC, created_at DESC, id DESC
ON CONFLICT (type, coalesce_key) DO UPDATE
SET produced_at = excluded.produced_at, request_id = excluded.request_id
WHERE c.produced_at <= excluded.produced_at

-- name: supersede_started
-- An older one whose claim had ended while a newer one was started elsewhere: its time is over.
UPDATE {schema}.requests r
SET state = 'superseded', code = 'superseded', superseded_by = c.request_id, token = NULL,
    lease_until = NULL, due_at = NULL, finished_at = clock_timestamp()
FROM {schema}.coalesced c
WHERE r.id = ANY (%(ids)s) AND r.token = %(token)s AND c.type = r.type
  AND c.coalesce_key = r.coalesce_key AND c.request_id <> r.id AND c.produced_at > r.produced_at
RETURNING r.id, r.type, r.run, r.attempt, r.superseded_by, r.status_ttl, r.headers::text

-- name: claimed_in_vain
-- A newer one waits, or an older one runs elsewhere. Apart for claimed rows and others, as their
-- indexes are.
SELECT r.id FROM {schema}.requests r
WHERE r.id = ANY (%(ids)s) AND r.token = %(token)s AND (EXISTS (
    SELECT FROM {schema}.requests o
    WHERE o.state = 'waiting' AND o.token IS NULL AND o.coalesce_key IS NOT NULL
      AND o.type = r.type AND o.coalesce_key = r.coalesce_key
      AND (o.produced_at, o.created_at, o.id) > (r.produced_at, r.created_at, r.id)
) OR EXISTS (
    SELECT FROM {schema}.requests o
    WHERE o.state = 'waiting' AND o.token IS NOT NULL AND o.coalesce_key IS NOT NULL
      AND o.type = r.type AND o.coalesce_key = r.coalesce_key AND o.id <> r.id
      AND ((o.produced_at, o.created_at, o.id) > (r.produced_at, r.created_at, r.id)
           OR (o.token <> %(token)s AND o.due_at > statement_timestamp()))
))

-- name: renew_claims
-- What is locked is being finished. state || '', as with the plain column a planner that has no
-- fresh statistics reads all that waits by requests_due.
UPDATE {schema}.requests
SET lease_until = statement_timestamp() + make_interval(secs => %(lease)s),
    due_at = statement_timestamp() + make_interval(secs => %(lease)s)
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.requests
    WHERE id = ANY (%(ids)s) AND state || '' = 'waiting'
      AND (id, token) IN (SELECT * FROM unnest(%(ids)s::text[], %(tokens)s::text[]))
    FOR UPDATE SKIP LOCKED
))

-- name: hold_claims
-- Claims of calls outside: few, and the index of claims has them all.
UPDATE {schema}.requests
SET lease_until = statement_timestamp() + make_interval(secs => %(lease)s)
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.requests
    WHERE state = 'running' AND token = ANY (%(tokens)s) FOR UPDATE SKIP LOCKED
))

-- name: lock_claims
-- What is locked for long is being finished, and is left to that.
SELECT id, coalesce_key IS NOT NULL FROM {schema}.requests
WHERE id = ANY (%(ids)s) AND state || '' = 'waiting'
  AND (id, token) IN (SELECT * FROM unnest(%(ids)s::text[], %(tokens)s::text[]))
ORDER BY id FOR UPDATE

-- name: lock_free_claims
SELECT id, coalesce_key IS NOT NULL FROM {schema}.requests
WHERE id = ANY (%(ids)s) AND state || '' = 'waiting'
  AND (id, token) IN (SELECT * FROM unnest(%(ids)s::text[], %(tokens)s::text[]))
ORDER BY id FOR UPDATE SKIP LOCKED

-- name: supersede_claims
-- Claims that are given back while a newer one waits.
WITH lost AS (
    SELECT r.id, (
        SELECT n.id FROM (
            SELECT id, produced_at, created_at FROM {schema}.requests
            WHERE state = 'waiting' AND token IS NULL AND coalesce_key IS NOT NULL
              AND type = r.type AND coalesce_key = r.coalesce_key
            UNION ALL
            SELECT id, produced_at, created_at FROM {schema}.requests
            WHERE state = 'waiting' AND token IS NOT NULL AND coalesce_key IS NOT NULL
              AND type = r.type AND coalesce_key = r.coalesce_key
        ) n
        WHERE (n.produced_at, n.created_at, n.id) > (r.produced_at, r.created_at, r.id)
        ORDER BY n.produced_at DESC, n.created_at DESC, n.id DESC LIMIT 1
    ) AS winner
    FROM {schema}.requests r WHERE r.id = ANY (%(ids)s) AND r.coalesce_key IS NOT NULL
)
UPDATE {schema}.requests r
SET state = 'superseded', code = 'superseded', superseded_by = lost.winner, token = NULL,
    lease_until = NULL, due_at = NULL, finished_at = clock_timestamp()
FROM lost WHERE r.id = ANY (%(ids)s) AND r.id = lost.id AND lost.winner IS NOT NULL
RETURNING r.id, r.type, r.run, r.attempt, r.superseded_by, r.status_ttl, r.headers::text

-- name: supersede_older
-- What waits and is older than a claim that is given back.
UPDATE {schema}.requests o
SET state = 'superseded', code = 'superseded', superseded_by = r.id,
    due_at = NULL, finished_at = clock_timestamp()
FROM {schema}.requests r
WHERE r.id = ANY (%(ids)s) AND r.state = 'waiting' AND r.coalesce_key IS NOT NULL
  AND o.state = 'waiting' AND o.token IS NULL AND o.coalesce_key IS NOT NULL
  AND o.type = r.type AND o.coalesce_key = r.coalesce_key AND o.id <> r.id
RETURNING o.id, o.type, o.run, o.attempt, o.superseded_by, o.status_ttl, o.headers::text

-- name: release_claims
UPDATE {schema}.requests
SET token = NULL, lease_until = NULL, due_at = greatest(not_before, statement_timestamp())
WHERE id = ANY (%(ids)s) AND state || '' = 'waiting'

-- name: park
INSERT INTO {schema}.requests (
    id, type, state, code, effect, topic, partition, kafka_offset, produced_at, not_before, due_at,
    run, crashes, key, reference, payload, headers
)
SELECT id, type, 'waiting', %(code)s, 'transaction', topic, partition, kafka_offset,
       least(produced_at, statement_timestamp()),
       not_before, greatest(not_before, statement_timestamp()), run, crashes, key, reference,
       payload, headers::jsonb
FROM unnest(
    %(ids)s::text[], %(types)s::text[], %(topics)s::text[], %(partitions)s::int[],
    %(offsets)s::bigint[], %(produced)s::timestamptz[], %(not_before)s::timestamptz[],
    %(runs)s::int[], %(crashes)s::int[], %(keys)s::bytea[], %(references)s::text[],
    %(payloads)s::bytea[], %(headers)s::text[]
) AS u(id, type, topic, partition, kafka_offset, produced_at, not_before, run, crashes, key,
       reference, payload, headers)
ORDER BY id
ON CONFLICT (id) DO NOTHING
RETURNING id, run

-- name: lock_failed
SELECT id, coalesce_key IS NOT NULL FROM {schema}.requests
WHERE id = ANY (%(ids)s) AND state = 'failed' AND payload IS NOT NULL ORDER BY id FOR UPDATE

-- name: revive
-- Failed requests that were sent again, after lock_failed: they wait with what their rows say, as a
-- payload that differs must never run under their ids. How long it is wanted and who asks is the
-- resend's. Not where this very message wrote the row: nobody has sent that again. One that has a
-- reference is a claim until those of its reference are settled; the index allows no second one.
UPDATE {schema}.requests r
SET state = 'waiting', code = %(code)s, attempt = 1, used = 0, run = r.run + u.run + 1,
    crashes = r.crashes + u.crashes, error = NULL, reason = NULL, finished_at = NULL,
    token = CASE WHEN r.coalesce_key IS NOT NULL THEN %(token)s END, lease_until = NULL,
    window_start = CASE WHEN r.coalesce_key IS NOT NULL THEN statement_timestamp() END,
    not_before = greatest(u.not_before, statement_timestamp()),
    due_at = greatest(u.not_before, statement_timestamp()),
    topic = u.topic, partition = u.partition, kafka_offset = u.kafka_offset,
    headers = (
        SELECT coalesce(jsonb_agg(h), '[]') FROM (
            SELECT h FROM jsonb_array_elements(r.headers) h
            WHERE h ->> 0 NOT IN ('ce_expirytime', 'ce_replyto')
            UNION ALL
            SELECT h FROM jsonb_array_elements(u.headers::jsonb) h
            WHERE h ->> 0 IN ('ce_expirytime', 'ce_replyto')
        ) merged
    )
FROM unnest(
    %(ids)s::text[], %(types)s::text[], %(topics)s::text[], %(partitions)s::int[],
    %(offsets)s::bigint[], %(not_before)s::timestamptz[], %(runs)s::int[], %(crashes)s::int[],
    %(headers)s::text[]
) AS u(id, type, topic, partition, kafka_offset, not_before, run, crashes, headers)
WHERE r.ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.requests WHERE id = ANY (%(ids)s)
)) AND r.id = u.id AND r.type = u.type AND r.state = 'failed'
  AND (r.topic, r.partition, r.kafka_offset) <> (u.topic, u.partition, u.kafka_offset)
RETURNING r.id, r.run, r.coalesce_key IS NOT NULL
