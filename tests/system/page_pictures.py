"""Pictures of the gateway's pages for docs/pages.md, dark and light: `scripts/screenshots`.

The shop of examples/ at work on services of its own: orders, parcels that nobody takes, counts that
coalesce, copies, an id with two payloads, messages that are no requests. What an hour and an
operator leave behind is written into the journal beside.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from PIL import Image

from consumer.config.gateway_keys import hash_of
from feedback.journal.migrations import migrate
from stack import Stack, up
from tests.support.browser import SIZE, Reader, browser_program, reader, started
from tests.support.gateway import KEY
from tests.support.gateway_process import WAIT, GatewayProcess
from tests.support.journal import Journal
from tests.support.service import Bench, Raw
from tests.support.waiting import eventually

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "pages"
MOST: Final = 250_000
"""Bytes of a picture."""
TALLEST: Final = 2600
"""Pixels: a page is pictured as a whole, but for the end of a long list."""
SCHEMES: Final = ("light", "dark")
FAILED: Final = "parcel-4"
TRACE: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE_URL: Final = "https://traces.example/trace/{trace_id}"
PAGES: Final = {
    "overview": ("Overview", "/"),
    "requests": ("Requests", "/requests"),
    "request": ("A request that failed", f"/requests/{FAILED}"),
    "order": ("A request that is done", "/requests/order-31003"),
    "move-many": ("Moving many", "/requests?state=dead"),
    "moved": ("What was moved", "/requests/remind-3"),
    "dead-letters": ("Dead letters", "/dead-letters"),
    "dead-letter": ("A dead letter", "/dead-letters/{malformed}"),
    "limits": ("Limits", "/limits"),
    "schedules": ("Schedules", "/schedules"),
    "oddities": ("Oddities", "/oddities"),
    "audit": ("Audit", "/audit"),
    "login": ("Log in", "/login"),
    "problem": ("A problem", "/requests/order-99"),
}
"""Name of the picture -> the page's name in docs/pages.md, and its path."""
EARLY: Final = ("login", "requests")
_ENDS: Final = """INSERT INTO {s}.counters (minute, n, type, state, code)
    SELECT date_trunc('minute', now()) - m * interval '1 minute',
           ceil(size * (20 + 6 * sin(m / 9.0) + m * 7 %% 5)), type, state, code
    FROM generate_series(1, 1439) m, (VALUES
        ('shop.place_order', 'done', 'ok', 40), ('shop.record_page_view', 'done', 'ok', 110),
        ('shop.recount_stock', 'superseded', 'superseded', 9),
        ('shop.ship_parcel', 'done', 'ok', 30),
        ('shop.charge_card', 'done', 'ok', 30), ('shop.charge_card', 'rejected', 'card_declined', 1)
    ) ends (type, state, code, size)
    ON CONFLICT (minute, type, state, code) DO UPDATE SET n = excluded.n"""
_SMOOTH: Final = """UPDATE {s}.requests SET
        produced_at = finished_at - (37 + kafka_offset * 7 %% 16) * interval '1 ms',
        created_at = finished_at - (12 + kafka_offset * 5 %% 19) * interval '1 ms'
    WHERE state = 'done' AND run = 1 AND finished_at > now() - interval '5 minutes'"""
"""The first of a consumer that has only just started wait for it."""
KEPT: Final = 17_000
"""Milliseconds."""
_CLEAN: Final = """names => {
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode())
        for (const [from, to] of names)
            walk.currentNode.nodeValue = walk.currentNode.nodeValue.replaceAll(from, to);
}"""
_ROWS: Final = """INSERT INTO {s}.requests (id, type, state, code, effect, topic, partition,
        kafka_offset, produced_at, created_at, finished_at, run, result)
    SELECT 'order-' || 31000 - n, (ARRAY['shop.place_order', 'shop.ship_parcel'])[n %% 2 + 1],
           'done', 'ok', 'transaction', 'shop', n %% 4, 9000 - n,
           at - (8 + n * 13 %% 37) * interval '1 ms', at, at + (9 + n * 7 %% 23) * interval '1 ms',
           1, '{"order_id": 1}'
    FROM (SELECT n, now() - n * interval '2.3 s' - interval '20 s' AS at
          FROM generate_series(1, 1500) n) past"""
_SCHEDULES: Final = (
    ("nightly-report", "shop.make_invoice", "0 6 * * *", "Europe/Oslo", "latest", None),
    ("stock-every-hour", "shop.recount_stock", "0 * * * *", "UTC", "skip", None),
    (
        "reminders",
        "shop.send_reminder",
        "*/15 8-18 * * 1-5",
        "Europe/Berlin",
        "all",
        "moving house",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: docs/pages")
    folder = parser.parse_args().folder
    program = browser_program()
    if program is None:
        sys.exit("no browser: apt-get install chromium")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="oncepool-pictures-") as made, ExitStack() as on:
        # PostgreSQL does not run as root and has to enter it.
        Path(made).chmod(0o711)
        stack = up(Path(made) / "stack", owner=os.getpid(), disposable=True)
        on.callback(stack.down, delete=True)
        bench = shop(stack, Path(made))
        on.callback(bench.close)
        malformed = trade(bench)
        keys = json.dumps({"ann": {"hash": hash_of(KEY), "roles": ["read", "operate"]}})
        log = Path(made) / "gateway.log"
        gateway = on.enter_context(
            GatewayProcess(bench.environment, log, gateway_keys=keys, gateway_trace_url=TRACE_URL)
        )
        who = on.enter_context(
            reader(on.enter_context(started(program)), f"{gateway.http.base_url}/ui")
        )
        who.page.goto(f"{who.root}/login")
        take(who, folder, "login", "/login")
        who.log_in(KEY)
        operate(who)
        take(who, folder, "requests", "/requests")
        keep_busy(bench)
        journal = Journal(bench.database, bench.schema)
        journal.run(_SMOOTH)
        journal.run(_ENDS)
        journal.close()
        who.page.wait_for_timeout(KEPT)  # by then the overview has no older figures
        for name, (_, path) in PAGES.items():
            if name not in EARLY:
                take(who, folder, name, path.format(malformed=malformed))
    sys.stdout.write("\nfor docs/pages.md:\n")
    for name, (title, _) in PAGES.items():
        links = " | ".join(f"[{scheme}](pages/{name}-{scheme}.png)" for scheme in SCHEMES)
        sys.stdout.write(f"| {title} | {links} |\n")


def shop(stack: Stack, folder: Path) -> Bench:
    """What the shop's instance, its producers and the gateway share."""
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    admin.create_topics([NewTopic("shop", num_partitions=4)])["shop"].result(30)
    migrate(stack.database, "oncepool")
    return Bench(stack, "shop", "oncepool", "oncepool", "shop", folder)


def trade(bench: Bench) -> int:
    """Lets the shop do what it does; the number of a message that is no request."""
    more = {"ONCEPOOL_APP": "examples.shop.app:app", "ONCEPOOL_WORKERS": "2"}
    bench.start(**more)
    client = bench.client
    parcels = [("parcel-1", "mainland"), ("parcel-2", "mountain"), ("parcel-3", "moon"),
               ("parcel-4", "atlantis")]  # fmt: skip
    for n, (name, region) in enumerate(parcels):
        client.submit("shop.ship_parcel", {"order_id": n + 1, "region": region}, request_id=name,
                      headers={"traceparent": TRACE})  # fmt: skip
    for n in range(30):
        client.submit(
            "shop.place_order",
            {"customer": f"c-{n % 7}", "lines": [{"article": "tea", "count": 1 + n % 3}]},
            request_id=f"order-{31000 + n}", key=f"c-{n % 7}", reference=f"basket {n}",
        )  # fmt: skip
    for n in range(6):
        client.submit("shop.recount_stock", {"article": "mug"}, request_id=f"count-mug-{n}")
        client.submit("shop.recount_stock", {"article": "tea"}, request_id=f"count-tea-{n}")
    for n in range(3):
        charge = {"order_id": n + 1, "card": "tok_visa", "amount_cents": 1290}
        client.submit("shop.charge_card", charge, request_id=f"charge-{n + 1}")
    for n in range(4):
        reminder = {"order_id": n + 1, "customer": f"c-{n}"}
        client.submit("shop.send_reminder", reminder, request_id=f"remind-{n}",
                      not_before=datetime.now(UTC) + timedelta(hours=n + 2))  # fmt: skip
    wanted = {*(name for name, _ in parcels), *(f"order-{31000 + n}" for n in range(30))}
    for name in wanted:
        client.wait(name, WAIT)
    again = Raw(bench)
    order = {"customer": "c-3", "lines": [{"article": "tea", "count": 1}]}
    for _ in range(5):
        send(again, "order-31003", "shop.place_order", order)
    for _ in range(2):
        send(again, "order-31009", "shop.place_order",
             {"customer": "c-2", "lines": [{"article": "tea", "count": 1}]})  # fmt: skip
    send(again, "parcel-3", "shop.ship_parcel", {"order_id": 99, "region": "mainland"})
    again.send("k", {"ce_id": b"no-type"}, b'{"order_id": 7}')
    again.send("k", {"ce_id": b"", "ce_type": b"shop.place_order"}, b"{}")
    journal = Journal(bench.database, bench.schema)
    found = "SELECT id FROM {s}.dead_letters WHERE reason = 'malformed' ORDER BY id"
    numbers = eventually(lambda: [row["id"] for row in journal.rows(found)], WAIT)
    eventually(lambda: journal.get("order-31009")["resends"] == 2, WAIT)
    remember(journal)
    journal.close()
    return int(numbers[0])


def send(raw: Raw, name: str, kind: str, payload: dict[str, Any]) -> None:
    """A message as any producer sends it."""
    raw.send(name, {"ce_id": name.encode(), "ce_type": kind.encode()}, json.dumps(payload).encode())


def remember(journal: Journal) -> None:
    """What a day has left behind."""
    journal.run(_ENDS)
    journal.run(_ROWS)
    journal.put(
        "charge-17",
        "in_doubt",
        type="shop.charge_card",
        code="worker_died",
        error=None,
        effect="external",
        payload=b'{"order_id": 17, "card": "tok", "amount_cents": 450}',
    )
    now = datetime.now(UTC)
    for name, kind, cron, tz, missed, paused in _SCHEDULES:
        why = {} if paused is None else {
            "paused_at": now, "paused_by": "gateway:ann", "paused_why": paused
        }  # fmt: skip
        journal.insert("schedules", name=name, type=kind, cron=cron, tz=tz, missed=missed,
                       decided_until=now, seen_at=now + timedelta(hours=1), ticks=214, skipped=2,
                       last_tick=now.replace(minute=0, second=0, microsecond=0), **why)  # fmt: skip


def operate(who: Reader) -> None:
    """An operator retries, pauses, and sets limits."""
    page = who.page
    who.open(f"/requests/{FAILED}")
    page.click("button:has-text('Run again')")
    page.fill("[name=why]", "the ferry goes again")
    page.press("[name=why]", "Enter")
    page.wait_for_selector("text=1 moved")
    who.open("/limits")
    kind = "shop.charge_card"
    page.fill(f"[aria-label='{kind}: over all instances']", "5")
    page.fill(f"[aria-label='{kind}: why']", "the card service is slow")
    page.press(f"[aria-label='{kind}: why']", "Enter")
    page.wait_for_selector("[role=status]")
    page.fill("[aria-label='shop.send_reminder: why it is paused or resumed']", "holidays")
    page.click("text=Pause shop.send_reminder")
    page.wait_for_selector("text=Resume shop.send_reminder")


def keep_busy(bench: Bench) -> None:
    """Invoices, each of which takes a worker some time."""
    line = {"article": "mug", "count": 3, "price_cents": 1290}
    for n in range(300):
        payload = {"order_id": n, "customer": f"c-{n % 7}", "lines": [line] * 1000}
        bench.client.submit("shop.make_invoice", payload, request_id=f"invoice-{n}")


def take(who: Reader, folder: Path, name: str, path: str) -> None:
    """One page, light and dark."""
    page = who.page
    who.open(path)
    if name == "overview":
        # Figures are asked for while somebody looks: by now they are there.
        page.wait_for_selector("text=shop.make_invoice")
        who.open(path)
    if name == "request":
        page.locator("summary").last.click()  # the last traceback
    if name == "move-many":
        page.check("[name=all]")
        page.click("button:has-text('Run again')")
        page.wait_for_selector("[name=why]")
    if name == "moved":
        page.click("button:has-text('Cancel')")
        page.fill("[name=why]", "the order was taken back")
        page.press("[name=why]", "Enter")
        page.wait_for_selector("text=1 moved")
    # What only this machine is called.
    page.evaluate(_CLEAN, [[f"{ROOT}/", ""], [socket.gethostname().split(".")[0], "shop-1"]])
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        file = folder / f"{name}-{scheme}.png"
        # Its own colours are few: with so many of them a picture takes a third of the bytes.
        tall = page.evaluate("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": SIZE["width"], "height": min(tall, TALLEST)}
        with Image.open(BytesIO(page.screenshot(full_page=True, clip=clip))) as whole:
            whole.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
        size = file.stat().st_size
        sys.stdout.write(f"{file.name}: {size:,} bytes\n")
        if size > MOST:
            sys.exit(f"{file} is larger than {MOST:,} bytes")


if __name__ == "__main__":
    main()
