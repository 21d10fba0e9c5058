"""What is known of requests that went through a gateway, after an episode."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class GatewayFacts:
    """What its callers were told by HTTP."""

    ids: set[str] = field(default_factory=set)
    """Requests that were sent by POST."""
    answers: Counter[str] = field(default_factory=Counter)
    """How often each was heard: `POST 202`, `GET 503`, `POST no answer`."""
    wrong: list[str] = field(default_factory=list)
    """Answers that no gateway should give, in words."""
    last: dict[str, str] = field(default_factory=dict)
    """Id -> state in the list of statuses, when everything had settled and every service was up."""
