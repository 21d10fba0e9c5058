"""The app of fragile requests, with calls that are open beside them."""

from __future__ import annotations

from typing import Any

from tests.support.calling_app import act
from tests.support.fragile_app import app


@app.handler("call", effect="external", timeout=60)
async def call(payload: dict[str, Any]) -> str:
    """Calls another service."""
    return await act(payload["do"])
