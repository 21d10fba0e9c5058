"""How `stats` looks in a terminal of 80 columns and 24 lines, and in a pipe."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from consumer.admin.overview import Look
from consumer.commands.stats import INSTANCE, TYPE, WIDE, render
from consumer.commands.stats_screen import KEYS, Scroll, keys, window
from feedback.operations.statistics import Figures
from processing.cluster.limits import ClusterLimits


def instance(number: int) -> dict[str, Any]:
    return {
        "id": f"worker-host-{number:02d}-3b5a89c6", "host": f"worker-host-{number:02d}.example.org",
        "version": "0.1.0", "workers": 16, "workers_free": 3, "joined": True, "assigned": 12,
        "paused": ["database"], "in_hand": 10_000, "queued": 9_000, "running": 13,
        "lost_at_commit": 0, "age": 1.2, "types": ["payment.create"], "at_once": {},
    }  # fmt: skip


def look(instances: int = 2, types: int = 3) -> Look:
    rows = [
        {"type": f"payment.create.{n}", "rate": 812.5, "done_hour": 2_925_000, "lost": 0,
         "done_day": 70_200_000, "waiting": 12, "due": 3, "oldest": 7.0, "overdue": 1.5}
        for n in range(types)
    ]  # fmt: skip
    return Look(
        instances=[instance(n) for n in range(instances)],
        limits=ClusterLimits(),
        topics=[{"topic": "payments", "partitions": 12, "waiting": 40}],
        requests=[{"type": "payment.create", "state": "done", "code": "ok", "n": 5}],
        journal=Figures(rows, dead=1, in_doubt=0, messages=2),
    )


def printed(width: int, found: Look) -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    console.print(render(found, console.width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_in_80_columns_nothing_is_cut() -> None:
    text = printed(80, look())

    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for shown in (
        "worker-host-01-3b5a89c6",
        "workers",
        "in",
        "hand",
        "running",
        "70200000",
        "1.2 s",
    ):
        assert shown in text
    assert "too narrow for host, version" in text


@pytest.mark.parametrize("width", [200, WIDE])
def test_where_there_is_room_every_column_is_shown(width: int) -> None:
    text = printed(width, look())

    for heading in (*INSTANCE, *TYPE):
        assert heading in text
    assert "too narrow" not in text


def test_what_is_counted_of_messages_without_a_type_has_a_name() -> None:
    found = look()
    found.requests = [{"type": "", "state": "rejected", "code": "malformed", "n": 5}]
    (line,) = (line for line in printed(WIDE, found).splitlines() if "malformed" in line)
    assert line.startswith("(none)")


def test_a_taller_picture_is_scrolled() -> None:
    console = Console(width=80, height=24, file=io.StringIO(), force_terminal=True)
    scroll = Scroll()

    def seen() -> str:
        picture = render(look(instances=30), console.width)
        with console.capture() as capture:
            console.print(window(console, picture, scroll), end="")
        return capture.get()

    assert len(seen().splitlines()) == 24
    assert "lines 1-23 of" in seen()
    assert "done" not in seen().splitlines()[-2]
    scroll.key("end")
    assert "payment.create  done" in " ".join(seen().split("\n")).replace("   ", "  ")
    scroll.key("top")
    assert "lines 1-23 of" in seen()


@given(st.lists(st.sampled_from(sorted(set(KEYS.values()))), max_size=30), st.integers(0, 90))
def test_the_window_stays_on_the_picture(pressed: list[str], lines: int) -> None:
    scroll = Scroll()
    for key in pressed:
        seen = scroll.fit(lines, 23)
        assert 0 <= seen.start <= max(0, lines - 23)
        assert len(seen) == min(lines, 23)
        scroll.key(key)


def test_keys_that_were_pressed_during_a_look_count_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main, terminal = os.openpty()
    with os.fdopen(main, "wb", buffering=0) as typed, os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with keys() as wait:
            typed.write(b"\x1b[Bj\x1bOz\xffGq")
            pressed = [wait(30, lambda: False) for _ in range(4)]
            assert wait(0, lambda: True) is None

    assert pressed == ["down", "down", "end", "quit"]
