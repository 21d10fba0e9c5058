"""The demo as a process, on services of its own: its books balance, and it leaves nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import orjson
import pytest

from stack import Stack
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.long  # it is a program of its own, scripts/demo

LIMIT = 280


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the demo keeps its files; short, as PostgreSQL's socket lies in it."""
    made = Path(tempfile.mkdtemp(prefix="oncepool-tests-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def start(
    folder: Path, *arguments: str, services: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONCEPOOL_")}
    return subprocess.Popen(
        [sys.executable, "-m", "consumer", "demo", *arguments],
        cwd=ROOT,
        env={
            **kept,
            "TMPDIR": str(folder),
            "ONCEPOOL_STACK_DATA": str(folder / "none"),
            **(services or {}),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left(folder: Path) -> list[str]:
    """Command lines of processes that work in this folder, and its files."""
    found = [str(path) for path in folder.iterdir() if path.name != "none"]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                told = f"{(entry / 'cwd').readlink()} {(entry / 'cmdline').read_text()}"
            except OSError:
                continue
            if str(folder) in told:
                found.append(told)
    return found


@pytest.mark.timeout(LIMIT + 20)
def test_the_books_balance_though_worker_consumer_relay_and_storefront_are_killed(
    folder: Path,
) -> None:
    demo = start(folder, "--quick", "--requests", "1600", "--json")
    told, shown = demo.communicate(timeout=LIMIT)

    assert demo.returncode == 0, shown[-4000:]
    ledger = orjson.loads(told)
    assert ledger["balanced"]
    assert ledger["accounted"] == ledger["sent"] == 1792 + ledger["resent"]
    assert (ledger["run_twice"], ledger["unexplained"]) == ([], [])
    assert ledger["done_once"] > 1400
    # Every fault was seen to take effect.
    killed = [fault for fault in ledger["faults"] if "SIGKILL" in fault]
    assert (len(killed), len(ledger["faults"])) == (4, 5)
    # What the killed consumer had committed and not finished was read again by its heirs.
    assert ledger["lost_in_killed_process"] == 0
    assert ledger["read_again_and_answered"] + ledger["resent"] > 0
    assert ledger["answered_from_journal"] > 0
    for reason in ("conflict", "expired", "invalid_payload", "card_declined", "unknown_article"):
        assert ledger["rejected"][reason] > 0
    queue = ledger["waiting_queue"]
    assert queue["delayed_done_when_due"] > 10
    assert queue["follow_ups_done_when_due"] > 10
    assert min(queue["retried_done_at_attempt"][n] for n in "23") > 3
    assert queue["superseded_winner_done"] == ledger["superseded"] > queue["coalesced_done"] > 0
    assert queue["dead_retried_by_operator_done"] > 3
    orders = ledger["orders"]
    assert orders["paid_once"] + orders["declined_and_not_charged"] == orders["committed"] > 90
    assert min(orders["rolled_back_by_customers"], orders["rolled_back_by_kills"]) > 0
    assert (orders["charged_without_an_order"], orders["charged_twice"]) == ([], [])
    assert "The books balance" in shown
    assert "The orders balance" in shown
    assert left(folder) == []


@pytest.mark.timeout(LIMIT)
def test_without_an_outbox_customers_are_charged_for_orders_that_are_not_there(
    folder: Path, stack: Stack
) -> None:
    services = {
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
        "ONCEPOOL_DATABASE_URL": stack.database,
        "ONCEPOOL_REDIS_URL": stack.redis,
    }
    demo = start(folder, "--no-outbox", "--json", services=services)
    told, shown = demo.communicate(timeout=LIMIT)

    assert demo.returncode == 1, shown[-4000:]
    orders = orjson.loads(told)["orders"]
    assert 0 < len(orders["charged_without_an_order"]) <= orders["begun"] - orders["committed"]
    assert f"{len(orders['charged_without_an_order'])} customers were charged" in shown
    # What was committed is as it should be: it is the rolled back ones that were charged.
    assert orders["paid_once"] + orders["declined_and_not_charged"] == orders["committed"]
    assert (orders["charged_twice"], orders["wrong"]) == ([], [])
    assert left(folder) == []


@pytest.mark.timeout(LIMIT)
def test_interrupted_it_leaves_nothing(folder: Path) -> None:
    demo = start(folder, "--no-outbox")
    assert demo.stdout is not None
    # Then there are services, a consumer and its workers, and a web shop.
    assert any("storefront 2 starts" in line for line in demo.stdout)
    assert len(left(folder)) > 5
    demo.send_signal(signal.SIGINT)
    demo.send_signal(signal.SIGINT)  # the impatient press it twice
    _, told = demo.communicate(timeout=60)

    assert demo.returncode == 1
    assert "interrupted; nothing is left running" in told
    eventually(lambda: left(folder) == [], 10, lambda: str(left(folder)))


@pytest.mark.timeout(LIMIT)
def test_served_it_can_be_looked_at_until_it_is_interrupted(folder: Path, stack: Stack) -> None:
    services = {
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
        "ONCEPOOL_DATABASE_URL": stack.database,
        "ONCEPOOL_REDIS_URL": stack.redis,
    }
    arguments = ("--no-outbox", "--serve", "--serve-seconds", "120")
    demo = start(folder, *arguments, services=services)
    assert demo.stdout is not None
    told = next(line for line in demo.stdout if "the dashboard: " in line)
    url = told.partition("the dashboard: ")[2].split()[0]

    assert httpx.get(url, timeout=30).status_code == 200
    charged = httpx.get(f"{url}requests", timeout=30).text
    assert "shop.charge_card" in charged
    demo.send_signal(signal.SIGINT)
    _, errors = demo.communicate(timeout=90)
    assert demo.returncode == 1, errors  # as its books do not balance
    assert "interrupted" not in errors
    eventually(lambda: left(folder) == [], 10, lambda: str(left(folder)))
