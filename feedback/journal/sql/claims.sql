-- Claiming rows of the waiting queue, for feedback/journal/claims.py.
-- {schema} is the quoted name of the journal's schema.

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
SELECT type, extract(epoch FROM {nearest due_at} - statement_timestamp())::float8 FROM types ORDER BY n

-- name: due_of_types
-- The same of some types, whichever of them wait.
SELECT wanted.type, extract(epoch FROM {nearest due_at} - statement_timestamp())::float8
FROM unnest(%(types)s::text[]) AS wanted(type), LATERAL (
    SELECT r.due_at FROM {schema}.requests r
    WHERE r.state = 'waiting' AND r.type = wanted.type ORDER BY r.due_at LIMIT 1
) first

-- name: claim_due
-- statement_timestamp(), as a volatile clock_timestamp() would keep the index from being used; and
-- ctid = ANY, as a join on id becomes a scan of the table.
-- A row whose reference has a live claim, or one that is newer, waits behind it. Of what is found as
-- much is taken as is wanted in all, and in bytes, with the row that goes beyond those. A header counts
-- for what it takes in memory beside its content, as in feedback/contract/record.py. Of types that are
-- not known it takes what is overdue by some time.
WITH due AS MATERIALIZED (
    SELECT found.*
    FROM unnest(%(types)s::text[], %(shares)s::int[], %(overdue)s::float8[])
         AS wanted(type, share, overdue), LATERAL (
        SELECT r.ctid, r.due_at, r.created_at, coalesce(octet_length(r.payload), 0)
               + coalesce(octet_length(r.headers::text), 0) + %(header)s * CASE
                   WHEN jsonb_typeof(r.headers) = 'array' THEN jsonb_array_length(r.headers) ELSE 0
               END AS size
        FROM {schema}.requests r
        WHERE r.state = 'waiting' AND r.type = wanted.type
          AND r.due_at <= statement_timestamp() - make_interval(secs => wanted.overdue)
          AND (r.token IS NULL OR %(expired)s)
          AND (r.coalesce_key IS NULL OR NOT EXISTS (
              SELECT FROM {schema}.requests c
              WHERE c.state = 'waiting' AND c.token IS NOT NULL AND c.coalesce_key IS NOT NULL
                AND c.type = r.type AND c.coalesce_key = r.coalesce_key AND c.id <> r.id
                AND (c.due_at > statement_timestamp() OR NOT %(expired)s
                     OR (c.produced_at, c.created_at, c.id) > (r.produced_at, r.created_at, r.id))
          ))
        ORDER BY r.due_at, r.created_at LIMIT wanted.share FOR UPDATE SKIP LOCKED
    ) found
), counted AS (
    SELECT ctid, sum(size) OVER (ORDER BY due_at, created_at, ctid) - size AS before,
           row_number() OVER (ORDER BY due_at, created_at, ctid) AS place
    FROM due
)
UPDATE {schema}.requests r
SET token = %(token)s, run = r.run + 1, lost_claims = r.lost_claims + (r.token IS NOT NULL)::int,
    lease_until = statement_timestamp() + make_interval(secs => %(lease)s),
    due_at = statement_timestamp() + make_interval(secs => %(lease)s)
WHERE r.ctid = ANY (ARRAY(
    SELECT ctid FROM counted WHERE before < %(bytes)s AND place <= %(most)s
))
RETURNING r.id, r.type, r.topic, r.produced_at, r.key, r.payload, r.headers::text, r.crashes,
          r.lost_claims, r.coalesce_key, coalesce(r.not_before, r.created_at), r.created_at,
          pg_current_xact_id()::text

-- name: types_held_elsewhere
-- Those of some types of which another instance holds a claim that has not run out.
SELECT wanted.type FROM unnest(%(types)s::text[]) AS wanted(type), LATERAL (
    SELECT FROM {schema}.requests r
    WHERE r.state = 'waiting' AND r.type = wanted.type AND r.due_at > statement_timestamp()
      AND r.due_at <= statement_timestamp() + make_interval(secs => %(lease)s)
      AND r.token IS NOT NULL AND NOT starts_with(r.token, %(prefix)s)
    LIMIT 1
) claimed

-- name: doubts_to_ask
-- Of which nobody who was to ask came back with an answer, several times, may be what ends those.
UPDATE {schema}.requests r
SET lost_claims = r.lost_claims + 1,
    due_at = statement_timestamp() + least(
        greatest(statement_timestamp() - r.finished_at, make_interval(secs => %(after)s)),
        make_interval(secs => %(longest)s))
WHERE r.ctid = ANY (ARRAY(
    SELECT found.ctid FROM unnest(%(types)s::text[]) AS wanted(type), LATERAL (
        SELECT ctid FROM {schema}.requests
        WHERE state = 'in_doubt' AND type = wanted.type
          AND coalesce(due_at, finished_at) <= statement_timestamp()
          AND (due_at IS NOT NULL
               OR finished_at <= statement_timestamp() - make_interval(secs => %(after)s))
          AND lost_claims < %(lost)s
        LIMIT %(most)s FOR UPDATE SKIP LOCKED
    ) found LIMIT %(most)s
))
RETURNING r.id, r.type, r.topic, r.produced_at, r.key, r.payload, r.headers::text

-- name: claims_between
-- What an instance has claimed of some types whose leases end between two times from now, type by
-- type along requests_due: what waits besides may be millions of rows. OFFSET 0, or it may become a
-- scan.
SELECT found.id, found.token FROM unnest(%(types)s::text[]) AS wanted(type), LATERAL (
    SELECT r.id, r.token FROM {schema}.requests r
    WHERE r.state = 'waiting' AND r.type = wanted.type
      AND r.due_at >= statement_timestamp() + make_interval(secs => %(first)s)
      AND r.due_at <= statement_timestamp() + make_interval(secs => %(last)s)
      AND starts_with(r.token, %(prefix)s)
    OFFSET 0
) found

-- name: end_unreadable
-- Rows that were just claimed and hold no request that this version can read. All else stays as it
-- is, for whoever looks into it.
UPDATE {schema}.requests r
SET state = 'dead', code = %(code)s, error = u.error, token = NULL, lease_until = NULL,
    due_at = NULL, window_start = NULL, finished_at = statement_timestamp()
FROM unnest(%(ids)s::text[], %(errors)s::text[]) AS u(id, error)
WHERE r.ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.requests WHERE id = ANY (%(ids)s)
)) AND r.id = u.id AND r.token = %(token)s
RETURNING r.id, r.type, r.run, r.attempt, r.error,
          CASE WHEN NOT r.own_fingerprint THEN r.fingerprint END, r.status_ttl

-- name: start_coalesced
-- Locks the reference in any case, so that of two instances that claim two of its rows at once the
-- second one sees the first one's claim in its next statement.
INSERT INTO {schema}.coalesced AS c (type, coalesce_key, produced_at, request_id)
SELECT DISTINCT ON (type, coalesce_key) type, coalesce_key, produced_at, id
FROM {schema}.requests WHERE id = ANY (%(ids)s) AND token = %(token)s
ORDER BY type, coalesce_key, produced_at DESC, created_at DESC, id DESC
ON CONFLICT (type, coalesce_key) DO UPDATE
SET produced_at = excluded.produced_at, request_id = excluded.request_id
WHERE c.produced_at < excluded.produced_at
   OR c.produced_at = excluded.produced_at AND NOT EXISTS (
        -- Of equal times the later arrival is the newer one.
        SELECT FROM {schema}.requests n, {schema}.requests r
        WHERE n.id = c.request_id AND r.id = excluded.request_id
          AND (n.created_at, n.id) > (r.created_at, r.id)
   )

-- name: supersede_started
-- An older one whose claim had ended while a newer one was started elsewhere: its time is over.
UPDATE {schema}.requests r
SET state = 'superseded', code = 'superseded', superseded_by = c.request_id, token = NULL,
    lease_until = NULL, due_at = NULL, finished_at = clock_timestamp()
FROM {schema}.coalesced c LEFT JOIN {schema}.requests n ON n.id = c.request_id
WHERE r.id = ANY (%(ids)s) AND r.token = %(token)s AND c.type = r.type
  AND c.coalesce_key = r.coalesce_key AND c.request_id <> r.id
  AND (c.produced_at, coalesce(n.created_at, '-infinity'), c.request_id)
      > (r.produced_at, r.created_at, r.id)
RETURNING r.id, r.type, r.run, r.attempt, r.superseded_by, r.status_ttl, r.headers::text

-- name: supersede_expired
-- Claims of older ones that ran out while a newer one of their reference starts: whoever still runs
-- them must not come to an end after it. Who is writing that end right now comes before it.
UPDATE {schema}.requests o
SET state = 'superseded', code = 'superseded', superseded_by = r.id, token = NULL,
    lease_until = NULL, due_at = NULL, finished_at = clock_timestamp()
FROM {schema}.requests r
WHERE r.id = ANY (%(ids)s) AND r.token = %(token)s AND r.coalesce_key IS NOT NULL
  AND o.type = r.type AND o.coalesce_key = r.coalesce_key AND o.state = 'waiting'
  AND o.ctid = ANY (ARRAY(
    SELECT x.ctid FROM {schema}.requests r2 JOIN {schema}.requests x
      ON x.type = r2.type AND x.coalesce_key = r2.coalesce_key
    WHERE r2.id = ANY (%(ids)s) AND r2.token = %(token)s AND x.state = 'waiting'
      AND x.token IS NOT NULL AND x.coalesce_key IS NOT NULL AND x.token <> %(token)s
      AND x.due_at <= statement_timestamp()
      AND (x.produced_at, x.created_at, x.id) < (r2.produced_at, r2.created_at, r2.id)
    FOR UPDATE OF x SKIP LOCKED
  ))
RETURNING o.id, o.type, o.run, o.attempt, o.superseded_by, o.status_ttl, o.headers::text

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

-- name: renew_calls
-- Claims of calls outside: few, and the index of claims has them all.
UPDATE {schema}.requests
SET lease_until = statement_timestamp() + make_interval(secs => %(lease)s)
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.requests
    WHERE state = 'running' AND token = ANY (%(tokens)s) FOR UPDATE SKIP LOCKED
))
