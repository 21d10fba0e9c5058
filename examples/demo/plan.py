"""What the demo sends, decided before it starts. Pure: the same run and number, the same plan."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from examples.demo.book import COALESCED
from examples.demo.item import MessageKind, PlannedMessage, Way
from feedback.contract.headers import headers_for

ORDER, CHARGE = "shop.place_order", "shop.charge_card"
INVOICE, VIEW = "shop.make_invoice", "shop.record_page_view"
REMINDER, PARCEL, RECOUNT = "shop.send_reminder", "shop.ship_parcel", "shop.recount_stock"

DUPLICATES, CONFLICTS, MALFORMED = 0.08, 0.02, 0.02
"""Shares of the valid requests."""
LATE = 400
"""Messages by which a late copy lies behind the first one, at most."""
CHARGE_TIMEOUT = 2.0
"""Seconds one charge may take. Its claim holds as long and some; then it counts as in doubt."""
ARTICLES = {"tea": 450, "coffee": 890, "mug": 1290, "kettle": 3990}
REGIONS = {"mainland": (30, 1), "island": (25, 2), "mountain": (25, 3), "moon": (20, 0)}
"""Region -> its weight, and the attempt at which a carrier comes; 0: never."""
NO_CARRIER = "moon"
PARCEL_ATTEMPTS = 3
START = datetime(2026, 1, 1, tzinfo=UTC)


Maker = Callable[[str, int, random.Random], PlannedMessage]


def make_plan(run: str, count: int, *, direct: float = 0.0, seed: int = 0) -> list[PlannedMessage]:
    """`count` valid requests, and among them their duplicates, conflicts and what is malformed.

    `run` begins each id. A conflict stands behind the request whose id it carries. In the first
    `direct` (share of them) are no requests for the waiting queue.
    """
    chance = random.Random(seed)
    firsts = [_valid(run, n, chance, queued=n >= direct * count) for n in range(count)]
    places = [(float(number), item) for number, item in enumerate(firsts)]
    for copy, share in ((MessageKind.DUPLICATE, DUPLICATES), (MessageKind.CONFLICT, CONFLICTS)):
        for number in chance.sample(range(count), int(count * share)):
            behind = 0.5 if chance.random() < 0.5 else chance.uniform(1, LATE)
            original = firsts[number]
            item = replace(original, kind=copy)
            if copy is MessageKind.CONFLICT:
                item = replace(item, value=_changed(original), expected="conflict")
            places.append((number + behind, item))
    bad = _malformed(run)
    places += [(chance.uniform(0, count), next(bad)) for _ in range(int(count * MALFORMED))]
    return [item for _, item in sorted(places, key=lambda place: place[0])]


def _valid(run: str, number: int, chance: random.Random, *, queued: bool) -> PlannedMessage:
    makers: list[Maker] = [_order, _charge, _invoice, _view]
    weights = [30, 12, 5, 53]
    if queued:
        makers += [_reminded_order, _reminder, _parcel, _recount]
        weights += [10, 20, 20, 30]
    (make,) = chance.choices(makers, weights)
    return make(f"{run}-{number:06d}", number, chance)


def _item(id: str, type: str, payload: Any, expected: str = "done", **more: Any) -> PlannedMessage:
    return PlannedMessage(MessageKind.FIRST, id, type, orjson.dumps(payload), expected, **more)


def _order(id: str, number: int, chance: random.Random) -> PlannedMessage:
    # Orders for one article change one row, its stock. Under one key they run one after the other,
    # and no two transactions wait for each other.
    article = "unicorn" if chance.random() < 0.03 else chance.choice(sorted(ARTICLES))
    line = {"article": article, "count": chance.randint(1, 5)}
    expected = "done" if article in ARTICLES else "rejected/unknown_article"
    payload = {"customer": f"customer {number % 97}", "lines": [line]}
    return _item(id, ORDER, payload, expected, key=article)


def _charge(id: str, number: int, chance: random.Random) -> PlannedMessage:
    declined = chance.random() < 0.05
    payload = {
        "order_id": number,
        "card": "declined" if declined else f"tok-{number % 31}",
        "amount_cents": chance.randint(100, 20_000),
    }
    expected = "rejected/card_declined" if declined else "done"
    return _item(id, CHARGE, payload, expected, timeout=CHARGE_TIMEOUT)


def _invoice(id: str, number: int, chance: random.Random) -> PlannedMessage:
    lines = [
        {"article": name, "count": chance.randint(1, 9), "price_cents": price}
        for name, price in ARTICLES.items()
    ]
    payload = {"order_id": number, "customer": f"customer {number % 97}", "lines": lines}
    return _item(id, INVOICE, payload)


def _view(id: str, number: int, chance: random.Random) -> PlannedMessage:
    payload = {
        "path": f"/articles/{chance.choice(sorted(ARTICLES))}",
        "visitor": f"visitor {number % 211}",
        "viewed_at": START + timedelta(seconds=number),
    }
    return _item(id, VIEW, payload)


def _reminded_order(id: str, number: int, chance: random.Random) -> PlannedMessage:
    order, after = _order(id, number, chance), round(chance.uniform(1, 3), 1)
    payload = {**orjson.loads(order.value), "remind_after": after}
    return replace(order, value=orjson.dumps(payload), follows=after)


def _reminder(id: str, number: int, chance: random.Random) -> PlannedMessage:
    payload = {"order_id": number, "customer": f"customer {number % 97}"}
    return _item(id, REMINDER, payload, way=Way.DELAYED, delay=round(chance.uniform(1, 4), 1))


def _parcel(id: str, number: int, chance: random.Random) -> PlannedMessage:
    (region,) = chance.choices(list(REGIONS), [weight for weight, _ in REGIONS.values()])
    attempt = REGIONS[region][1] or PARCEL_ATTEMPTS
    way = Way.DEAD if region == NO_CARRIER else Way.RETRIED if attempt > 1 else Way.DIRECT
    return _item(id, PARCEL, {"order_id": number, "region": region}, way=way, attempt=attempt)


def _recount(id: str, _: int, chance: random.Random) -> PlannedMessage:
    payload = {"article": chance.choice(sorted(ARTICLES))}
    return _item(id, RECOUNT, payload, COALESCED, way=Way.COALESCED)


def _changed(item: PlannedMessage) -> bytes:
    """Another payload of the same type."""
    payload = orjson.loads(item.value)
    names = ("customer", "card", "visitor", "region", "article")
    name = next(name for name in names if name in payload)
    return orjson.dumps({**payload, name: f"not {payload[name]}"})


def _malformed(run: str) -> Iterator[PlannedMessage]:
    """One after the other of what can be wrong with a message."""
    ways: list[Callable[[str], PlannedMessage]] = [
        _no_id,
        _no_type,
        _not_json,
        _wrong_shape,
        _expired,
    ]
    number = 0
    while True:
        yield ways[number % len(ways)](f"{run}-bad-{number:04d}")
        number += 1


def _bad(
    id: str | None, expected: str, headers: list[tuple[str, bytes]], value: bytes = b"{}"
) -> PlannedMessage:
    return PlannedMessage(MessageKind.MALFORMED, id, VIEW, value, expected, headers=tuple(headers))


def _no_id(_: str) -> PlannedMessage:
    return _bad(None, "malformed", [("ce_type", VIEW.encode())])


def _no_type(id: str) -> PlannedMessage:
    return _bad(id, "failed/malformed", [("ce_id", id.encode())])


def _not_json(id: str) -> PlannedMessage:
    return _bad(id, "rejected/invalid_payload", headers_for(id, VIEW), b'{"path": ')


def _wrong_shape(id: str) -> PlannedMessage:
    return _bad(id, "rejected/invalid_payload", headers_for(id, VIEW), b'["no", "object"]')


def _expired(id: str) -> PlannedMessage:
    late = b'{"customer": "too late", "lines": [{"article": "tea"}]}'
    return _bad(id, "rejected/expired", headers_for(id, ORDER, expires=START), late)
