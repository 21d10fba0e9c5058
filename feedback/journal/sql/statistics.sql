-- Figures of the journal as a whole, for feedback/operations/statistics.py and `oncepool stats`, and for
-- feedback/journal/open_rows.py and /metrics.
-- {schema} is the quoted name of the journal's schema.

-- name: waiting_by_type
-- The index of due rows holds all that is asked for.
SELECT type, count(*)::bigint AS waiting, count(*) FILTER (WHERE due_at <= now())::bigint AS due,
       greatest(0, extract(epoch FROM now() - min({nearest created_at})))::float8 AS oldest,
       greatest(0, extract(epoch FROM now() - min({nearest due_at})))::float8 AS overdue
FROM {schema}.requests WHERE state = 'waiting' GROUP BY type ORDER BY type

-- name: open_questions
SELECT (SELECT count(*) FROM {schema}.requests WHERE state = 'dead')::bigint AS dead,
       (SELECT count(*) FROM {schema}.requests WHERE state = 'in_doubt')::bigint AS in_doubt,
       (SELECT count(*) FROM {schema}.dead_letters WHERE retried_at IS NULL)::bigint AS messages,
       (SELECT greatest(0, extract(epoch FROM now() - min(at)))::float8 FROM (
           SELECT min({nearest created_at}) FROM {schema}.requests WHERE state = 'running'
           UNION ALL
           SELECT min({nearest created_at}) FROM {schema}.requests WHERE state = 'in_doubt'
       ) AS open_ones (at) HAVING min(at) IS NOT NULL) AS oldest_open

-- name: open_rows
-- Each part ends at a bound, so that a look costs the same however many rows there are, and none hides
-- another: what is due is found type by type, and doubts are not looked for among the first of the dead.
-- Each is in the order of its partial index: without, the table may be read from its old end, where
-- none of them is.
WITH RECURSIVE waiting AS (
    SELECT FROM {schema}.requests WHERE state = 'waiting'
    ORDER BY type, due_at, created_at LIMIT %(most)s
), types AS (
    (SELECT 1 AS n, type, due_at FROM {schema}.requests
     WHERE state = 'waiting' ORDER BY type, due_at LIMIT 1)
    UNION ALL
    SELECT types.n + 1, next.type, next.due_at
    FROM types, LATERAL (
        SELECT r.type, r.due_at FROM {schema}.requests r
        WHERE r.state = 'waiting' AND r.type > types.type ORDER BY r.type, r.due_at LIMIT 1
    ) next
    WHERE types.n < %(most)s
), due AS (
    SELECT FROM types, LATERAL (
        SELECT FROM {schema}.requests r
        WHERE r.state = 'waiting' AND r.type = types.type AND r.due_at <= now()
        ORDER BY r.due_at LIMIT %(most)s
    ) of_type
    WHERE types.due_at <= now() LIMIT %(most)s
), doubts AS (
    SELECT finished_at FROM {schema}.requests WHERE state = 'in_doubt'
    ORDER BY finished_at LIMIT %(most)s
), dead AS (
    SELECT finished_at FROM {schema}.requests WHERE state = 'dead'
    ORDER BY finished_at LIMIT %(most)s
), letters AS (
    SELECT at FROM {schema}.dead_letters WHERE retried_at IS NULL ORDER BY at LIMIT %(most)s
)
SELECT 'waiting', count(*)::bigint, NULL::float8 FROM waiting
UNION ALL
SELECT what, n, coalesce(greatest(0, extract(epoch FROM now() - since)), 0)::float8 FROM (
    SELECT 'due', (SELECT count(*) FROM due)::bigint, min({nearest due_at}) FROM types
    UNION ALL
    SELECT 'in_doubt', count(*)::bigint, min({nearest finished_at}) FROM doubts
    UNION ALL
    SELECT 'dead', count(*)::bigint, min({nearest finished_at}) FROM dead
    UNION ALL
    SELECT 'dead_letter', count(*)::bigint, min({nearest at}) FROM letters
) AS found (what, n, since)

-- name: ended_by_type
-- The rate is that of the minute before this one and of what has passed of this one.
SELECT type,
       coalesce(sum(n) FILTER (WHERE done AND minute > now() - interval '1 hour'), 0)::bigint
           AS done_hour,
       coalesce(sum(n) FILTER (WHERE done), 0)::bigint AS done_day,
       coalesce(sum(n) FILTER (WHERE ended AND minute >= s.since), 0)::float8
           / extract(epoch FROM now() - s.since)::float8 AS rate,
       coalesce(sum(n) FILTER (WHERE state = 'lost'), 0)::bigint AS lost
FROM {schema}.counters,
     LATERAL (SELECT date_trunc('minute', now()) - interval '1 minute' AS since) AS s,
     LATERAL (SELECT state = 'done' AND code NOT IN ('duplicate', 'read_again') AS done,
                     state = ANY (%(ended)s) AND code NOT IN ('duplicate', 'read_again')
                         AS ended) AS e
WHERE minute > now() - interval '1 day' GROUP BY type, s.since ORDER BY type

-- name: stats
SELECT type, state, code, sum(n)::bigint AS n
FROM {schema}.counters WHERE minute >= date_trunc('minute', %s::timestamptz)
GROUP BY type, state, code ORDER BY type, state, code
