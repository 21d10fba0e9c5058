"""Where the time of an idle request goes: one run whose processes stamp what is over."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.asking import by_client, spans_of
from benchmarks.full_path_runs import fill_topic, instance, place
from benchmarks.report import say
from benchmarks.stamps import FOLDER, durations, stamps_in
from stack import Stack

APP, MODULE = "benchmarks.watched_app:app", "benchmarks.watched_main"


def stamped(stack: Stack, kind: str, workers: int, count: int) -> list[dict[str, float]]:
    """Step -> seconds of each request of one run, but for those of which a stamp is missing."""
    with TemporaryDirectory(prefix="oncepool-stamps-") as folder:
        settings = {FOLDER: folder, "ONCEPOOL_APP": APP}
        with place(stack, workers) as where:
            fill_topic(where, kind, 0)
            with instance(where, MODULE, **settings), by_client(where, kind) as ask:
                spans = spans_of(ask, count)
        stamps = stamps_in(Path(folder))
    found = [durations(span.begin, span.end, stamps) for span in spans]
    told = [one for one in found if one is not None]
    if len(told) < len(found):
        say(f"of {len(found) - len(told)} requests a stamp is missing")
    return told
