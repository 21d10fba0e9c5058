"""When Python looks for garbage: hardly while a chunk runs, as nearly all of it lives till its end.

By default it looks after 700 new objects that stay, some fifty requests: a chunk of 500 was visited
seven times and more while it ran, in vain, and freed without that when it was done.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

ROOM: Final = 200
"""New objects that each request of a chunk may have before the collector visits them."""


@contextmanager
def room_for(requests: int) -> Iterator[None]:
    """Meanwhile so many requests run. What they leave behind in rings is found right after them.

    A request that goes alone may run for long and leave much: it has no more room than ever. Nor is
    there more where the app has turned collections off; what else it has set stands.
    """
    young, *older = gc.get_threshold()
    if requests <= 1 or not young:
        yield
        return
    raised = (young + ROOM * requests, *older)
    gc.set_threshold(*raised)
    try:
        yield
    finally:
        if gc.get_threshold() == raised:  # else a handler has set another one, for good
            gc.set_threshold(young, *older)
