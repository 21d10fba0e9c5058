"""A cancel that is read when the run that it meant is over."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.workers import Workers


def chunks(workers: Workers) -> dict[str, int]:
    """The chunk of each request that runs."""
    return {row["request_id"]: row["chunk"] for row in workers.supervisor.running_requests()}


def test_a_cancel_hits_no_later_run_of_its_id(make: Callable[..., Workers]) -> None:
    """However late it is read, and where a Redis that was restored has it once more."""
    workers = make(workers=2)
    workers.start()
    workers.submit("again", do="hang", ce_timeout="1")
    workers.until(lambda: "again" in chunks(workers))
    over = chunks(workers)["again"]
    workers.finish()
    assert workers.states() == {"again": ("failed", "timeout")}

    workers.submit("again", "other", do="hang", ce_timeout="60")
    workers.until(lambda: chunks(workers).keys() == {"again", "other"})
    workers.cancel("again", "by ann", over)
    workers.until(lambda: not workers.asked)
    # What is asked afterwards is heard afterwards.
    workers.cancel("other", "by ann", chunks(workers)["other"])
    workers.until(lambda: workers.states().get("other") == ("cancelled", "cancelled"))
    assert chunks(workers).keys() == {"again"}

    workers.cancel("again", "by ann", chunks(workers)["again"])
    workers.finish()
    assert workers.states()["again"] == ("cancelled", "cancelled")


def test_an_end_that_is_known_waits_for_no_fresh_request(make: Callable[..., Workers]) -> None:
    """Both workers have long runs, and another one of another type waits already."""
    workers = make(workers=2)
    workers.start()
    workers.submit("first", "second", do="hang", ce_timeout="60")
    workers.until(lambda: chunks(workers).keys() == {"first", "second"})
    workers.submit("third", do="heed", kind="fragile.call")
    workers.cancel("first", "by ann", chunks(workers)["first"])
    workers.until(lambda: "third" in workers.states())
    assert workers.states()["first"] == ("cancelled", "cancelled")
    assert "second" in chunks(workers)
