-- What operators change beside rows of requests: feedback/operations/operator_changes.py. What stands in the
-- journal itself is noted by the statement that changes it, in its own file.

-- name: note_changes
INSERT INTO {schema}.operator_changes (what, name, type, action, detail, who, why)
SELECT what, name, type, action, detail, %(who)s, %(why)s
FROM unnest(%(whats)s::text[], %(names)s::text[], %(types)s::text[], %(actions)s::text[],
            %(details)s::text[]) AS u(what, name, type, action, detail)

-- name: note_ended_runs
-- Of requests that ran; they are where they are by now.
INSERT INTO {schema}.transitions (run, request_id, action, from_state, to_state, who, why)
SELECT run, id, 'cancel', 'running', state, %(who)s, %(why)s
FROM unnest(%(ids)s::text[], %(runs)s::int[], %(states)s::text[]) AS u(id, run, state)
WHERE NOT EXISTS (SELECT FROM {schema}.transitions t
                  WHERE t.request_id = u.id AND t.run = u.run AND t.action = 'cancel'
                    AND t.from_state = 'running')
ORDER BY id

-- name: latest_changes
-- What operators did, moves of requests among it; of each table the newest by its primary key, or who sees
-- types that nobody moves would have all of it read. The type of a request is looked up move by move:
-- joined, all requests of rare types would be read first.
SELECT * FROM (
    (SELECT at, 'request' AS what, request_id AS name, type, action, from_state, to_state,
            NULL AS detail, who, why
     FROM (
         SELECT t.*, (SELECT r.type FROM {schema}.requests r WHERE r.id = t.request_id) AS type
         FROM {schema}.transitions t ORDER BY id DESC LIMIT %(newest)s
     ) moves
     WHERE %(types)s::text[] IS NULL OR type LIKE ANY (%(types)s)
     ORDER BY id DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT at, what, name, type, action, NULL, NULL, detail, who, why
     FROM (
         SELECT * FROM {schema}.operator_changes ORDER BY id DESC LIMIT %(newest)s
     ) changes
     WHERE %(types)s::text[] IS NULL OR type LIKE ANY (%(types)s)
     ORDER BY id DESC LIMIT %(limit)s)
) latest
ORDER BY at DESC LIMIT %(limit)s
