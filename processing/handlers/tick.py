"""What a handler that comes by the clock is given where its schedule names no payload."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel


class Tick(BaseModel):
    """The payload of a request that came by the clock, where its schedule gives no other."""

    schedule: str
    """Its schedule's name."""
    at: datetime
    """When it was due, in UTC; it may run later."""
