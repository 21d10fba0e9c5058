"""Tokens: whose claim a row is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

ClaimNames: TypeAlias = Iterable[tuple[str, int]]
"""(id, order) of claimed rows."""


def claim_token(instance: str, order: int) -> str:
    """The token of rows that an instance claimed under an order; no two orders share one."""
    return f"{instance}:{order}"


def tokens_of(instance: str, claims: ClaimNames) -> tuple[list[str], dict[str, Any]]:
    """The ids of an instance's claims, sorted, and the values `ids` and `tokens` of statements."""
    # Of two claims of one row only the later one can still hold.
    orders = dict(sorted(claims, key=_order_of))
    ids = sorted(orders)
    return ids, {
        "ids": ids,
        "tokens": [claim_token(instance, orders[request_id]) for request_id in ids],
    }


def _order_of(claim: tuple[str, int]) -> int:
    return claim[1]
