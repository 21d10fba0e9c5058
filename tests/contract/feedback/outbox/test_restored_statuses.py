"""A Redis that starts from its last snapshot says again what it has said before."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from feedback import Client, Status, StoreUnavailable
from feedback.contract.states import State
from feedback.status.redis_store import RedisStatusStore
from feedback.status.status import StatusFields, StatusWrite
from tests.support.asked import Asked
from tests.support.client import FakeProducer
from tests.support.outbox import Outbox
from tests.support.private_valkey import PrivateValkey
from tests.support.waiting import eventually


def test_a_failure_from_before_the_row_is_no_end_of_it_while_its_request_runs(
    outbox_: Outbox, tmp_path: Path
) -> None:
    redis = PrivateValkey(tmp_path)
    store = RedisStatusStore(redis.url)
    try:
        asked = Asked(outbox_, "a", store=store)
        asked.status("a", State.FAILED, "handler_error", at=datetime.now(UTC) - timedelta(hours=1))
        with redis.client() as client:
            client.save()
        asked.silence()
        asked.settle()
        asked.status("a", State.RUNNING, run=2)
        asked.silence()
        asked.settle()
        redis.stop()
        redis.start()
        assert eventually(lambda: [one.state for one in _read(store)] == ["failed"])
        asked.settle()
        assert asked.rows()["a"]["state"] == "sent"
        asked.silence()
        asked.settle()
        assert asked.rows()["a"]["state"] == "unsent", "and it is asked for what stands"
        asked.send()
        asked.status("a", State.DONE, run=2)
        asked.settle()
        assert asked.rows()["a"]["state"] == "done"
    finally:
        store.close()
        redis.stop()


def test_a_failure_from_before_a_call_is_no_answer_after_a_consumer_could_not_run_it(
    tmp_path: Path,
) -> None:
    redis = PrivateValkey(tmp_path)
    store = RedisStatusStore(redis.url)
    producer, answers = FakeProducer(), list[Status]()

    def say(state: State, run: int, code: str, *, bump: bool = False) -> None:
        said = StatusFields("a", "t", state, run, code, 1, at=datetime.now(UTC))
        store.write([StatusWrite.of(said, bump=bump)])

    try:
        say(State.FAILED, 1, "handler_error")
        with redis.client() as direct:
            direct.save()
        with Client(producer, redis.url, "requests", hints=False) as client:

            def call() -> None:
                answers.append(client.call("t", 1, request_id="a", timeout=60, resend_after=0.2))

            calling = threading.Thread(target=call)
            calling.start()
            assert eventually(lambda: producer.sent)
            say(State.FAILED, 0, "database_unavailable", bump=True)
            assert eventually(lambda: answers or _seen(client) == "database_unavailable")
            redis.stop()
            redis.start()
            assert eventually(lambda: answers or _seen(client) == "handler_error")
            say(State.DONE, 2, "ok")
            calling.join()
        assert [one.state for one in answers] == ["done"]
    finally:
        store.close()
        redis.stop()


def _seen(client: Client) -> str | None:
    """What its waits have read last, and looked at."""
    watches = [one() for one in client._waits._watches.get("a", ())]
    return next((one.status.code for one in watches if one and one.status), None)


def _read(store: RedisStatusStore) -> list[Status]:
    try:
        return [Status.decode(value) for value in store.read_raw(["a"]) if value]
    except StoreUnavailable:
        return []
