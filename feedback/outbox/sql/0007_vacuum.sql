-- Autovacuum rests by default after each few pages, and so takes minutes for what a busy outbox leaves in one:
-- all that was sent meanwhile is passed by with each claim and each look for answers.
ALTER TABLE :schema.requests SET (autovacuum_vacuum_cost_delay = 0);
ALTER TABLE :schema.finished SET (autovacuum_vacuum_cost_delay = 0);
ALTER TABLE :schema.inbox SET (autovacuum_vacuum_cost_delay = 0);
