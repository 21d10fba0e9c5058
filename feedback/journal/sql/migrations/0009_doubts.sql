-- Requests in doubt whose checks are asked by themselves: `due_at` is when to ask the next time, NULL
-- where nobody has yet, and `lost_claims` how often nobody came back who was to ask.

CREATE INDEX requests_doubts ON requests (type, (coalesce(due_at, finished_at)))
    WHERE state = 'in_doubt';
