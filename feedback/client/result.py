"""A result record as its reader has it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from feedback.contract.fingerprint import parse_json
from feedback.contract.states import State


@dataclass(frozen=True, slots=True)
class Result:
    """How a request ended, as a result record says. `at` (UTC) is when that was written."""

    id: str
    type: str
    state: State
    code: str
    result: Any
    at: datetime
    result_omitted: bool = False
    """There is a result, and it was too large for Kafka: the journal has it."""

    @classmethod
    def decode(cls, value: bytes | None) -> Result:
        """Reads a record's value. Raises ValueError for anything else."""
        try:
            fields = parse_json(value or b"")
            return cls(
                id=fields["id"],
                type=fields["type"],
                state=State(fields["state"]),
                code=fields["code"],
                result=fields.get("result"),
                at=datetime.fromisoformat(fields["at"]),
                result_omitted=fields.get("result_omitted", False),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a result record: {error!r}") from None
