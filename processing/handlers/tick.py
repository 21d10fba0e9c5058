"""What a handler that comes by the clock gets. Loaded by those who annotate a payload so."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel


class Tick(BaseModel):
    """The payload of a request that came by the clock, where its schedule gives no other."""

    schedule: str
    """Its schedule's name."""
    at: datetime
    """When it was due, in UTC; it may run later."""
