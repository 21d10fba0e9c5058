"""Requests in doubt whose checks are to be asked, though nobody sends them again.

Who takes one says when to ask the next time, so that no two instances ask at once, and that a
process that is lost with it leaves it to the next one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from feedback.contract.states import MOST_LOST_CLAIMS
from feedback.journal.claimed_rows import DoubtfulRow
from feedback.journal.connections import Connection
from feedback.journal.queries import execute

LONGEST_WAIT: Final = 3600.0
"""Seconds between two questions about one request, at most."""


def doubts_to_ask(
    connection: Connection, types: Sequence[str], most: int, after: float, *, schema: str
) -> list[DoubtfulRow]:
    """At most `most` requests of these types whose time has come. Raises psycopg.Error.

    That is `after` seconds after they came to be in doubt, and then each time after twice as long.
    What several who were to ask did not come back from is left out. Each type may come first, as
    checks of one of which thousands are in doubt may take hours.
    """
    values = {
        "types": random.sample(types, len(types)), "most": most, "after": after,
        "longest": LONGEST_WAIT, "lost": MOST_LOST_CLAIMS,
    }  # fmt: skip
    return [DoubtfulRow(*row) for row in execute(connection, "doubts_to_ask", schema, values)]
