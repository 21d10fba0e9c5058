"""What of the journal an app uses beside what all do: its consumer's database user needs it."""

from __future__ import annotations

from feedback.journal.privileges import Use
from processing.handlers.app import App


def uses_of(app: App) -> tuple[str, ...]:
    """In a fixed order; a results topic is no matter of the app's."""
    handlers = app.handlers.values()
    uses = {
        Use.COALESCING: any(handler.coalesce is not None for handler in handlers),
        Use.COMPUTING: any(handler.effect == "none" for handler in handlers),
        Use.SCHEDULES: bool(app.schedules),
    }
    return tuple(use.value for use, used in uses.items() if used)
