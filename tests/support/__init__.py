"""What tests share: waiting for conditions, the stack of the run, names that are nobody else's."""

from __future__ import annotations

from tests.support.waiting import eventually

__all__ = ["eventually"]
