-- Follow-ups alone: all other requests cost it nothing. A migration of its own, as who only reads the
-- table goes on while it is made.

CREATE INDEX requests_asked_by ON requests (asked_by, id) WHERE asked_by IS NOT NULL;
