"""How a total is divided over instances: as even as their needs allow. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping


def fair_shares(total: int, needs: Mapping[str, int], what: str) -> dict[str, int]:
    """Instance -> its share; shares add up to the total. `needs` names at least one instance.

    Where there is less than is needed, nobody gets more than it needs and the others get the same
    (max-min fair). Where there is more, everybody gets what it needs, and what is left goes to
    those with least: shares that suffice stay even, so that small changes of needs move nothing.

    A remainder goes to instances in an order of its own for each `what`, so that many types of
    which few may run do not all fall to the same instance, and a change of the group moves few.
    """
    needs = {one: min(need, total) for one, need in needs.items()}
    scarce = sum(needs.values()) >= total
    shares: dict[str, int] = {}
    left = total
    # In turn those that get exactly what they need: of little the modest, of plenty the greedy.
    for one in sorted(needs, key=needs.__getitem__, reverse=not scarce):
        level = left // (len(needs) - len(shares))
        if (needs[one] > level) == scarce:
            break
        shares[one] = needs[one]
        left -= needs[one]
    others = _ranked(needs.keys() - shares.keys(), what)
    for place, one in enumerate(others):
        part, rest = divmod(left, len(others))
        shares[one] = part + (place < rest)
    return shares


def _ranked(ids: Iterable[str], what: str) -> list[str]:
    return sorted(ids, key=lambda one: (_rank(what, one), one))


def _rank(what: str, id: str) -> bytes:
    return hashlib.blake2b(f"{what}\0{id}".encode(), digest_size=8).digest()
