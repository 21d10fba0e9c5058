"""Which request asked for which, as operators read it."""

from __future__ import annotations

from feedback.journal.queries import query
from feedback.operations.follow_ups import FollowUps, follow_ups_of
from tests.support.journal import Journal


def found(journal: Journal, id: str, most: int = 10, **options: object) -> FollowUps:
    types = options.get("types")
    assert types is None or isinstance(types, list)
    return follow_ups_of(journal.connection, id, most, schema=journal.schema, types=types)


def one(id: str, type: str, state: str) -> dict[str, str]:
    return {"id": id, "type": type, "state": state, "code": "handler_error"}


def test_who_asked_for_it_and_what_it_asked_for(journal: Journal) -> None:
    journal.put("order", "done", type="order.place")
    journal.put("ship", "dead", type="parcel.ship", asked_by="order")
    journal.put("bill", "waiting", type="bill.send", asked_by="order")
    journal.put("orphan", "dead", asked_by="forgotten")

    asked_for = [one("bill", "bill.send", "waiting"), one("ship", "parcel.ship", "dead")]
    assert found(journal, "order") == FollowUps(None, asked_for)
    assert found(journal, "order", 1) == FollowUps(None, asked_for[:1], more=True)
    assert found(journal, "ship") == FollowUps(one("order", "order.place", "done"), [])
    forgotten = {"id": "forgotten", "type": None, "state": None, "code": None}
    assert found(journal, "orphan") == FollowUps(forgotten, [])

    # Whoever may see some types hears of no other, and of none that nobody can say the type of.
    assert found(journal, "order", types=["parcel.*"]).asked_for == asked_for[1:]
    assert found(journal, "ship", types=["parcel.*"]) == FollowUps(None, [])
    assert found(journal, "orphan", types=["*"]) == FollowUps(None, [])


def test_they_are_found_among_many_without_reading_all(journal: Journal) -> None:
    journal.run(
        "INSERT INTO {s}.requests (id, type, state, code, effect, topic, partition, kafka_offset,"
        " produced_at, asked_by) SELECT 'r' || n, 'a', 'waiting', 'ok', 'none', 't', -1, -1, now(),"
        " CASE WHEN n %% 10 = 0 THEN 'r' || (n / 1000) END FROM generate_series(1, 20000) n"
    )
    journal.run("VACUUM ANALYZE {s}.requests")
    values = {"id": "r1", "types": None, "limit": 51}
    for name in ("asked_by", "asked_for"):
        text = f"EXPLAIN {query(name, journal.schema)}"
        plan = "\n".join(line for (line,) in journal.connection.execute(text, values).fetchall())
        assert "Seq Scan" not in plan, plan
    assert len(found(journal, "r1", 50).asked_for) == 50
