"""For how long after its last send a row may be sent again by itself, in SQL."""

from __future__ import annotations

import json
from typing import Any, Final

from feedback.outbox.relay.answers import AnswerPolicy

SILENCE: Final = "coalesce((%(by_type)s::jsonb ->> type)::float8, %(after)s)"
"""Seconds without news after a row's first send."""
# What is not due yet waits with the consumers, who forget nothing that waits. And one silence has
# to fit in, also of types whose runs take longer than the window.
TOO_LATE: Final = f"""
(sends > 0 AND greatest(sent_at, not_before)
    < now() - make_interval(secs => greatest(%(window)s, 2 * {SILENCE})))
"""
"""Whether a row was sent so long ago that its consumers may have forgotten it."""


def window_values(policy: AnswerPolicy) -> dict[str, Any]:
    """Parameters of these expressions."""
    return {
        "by_type": json.dumps(dict(policy.by_type)),
        "after": policy.resend_after,
        "window": policy.window,
    }
