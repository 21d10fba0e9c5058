"""What the gateway's bodies look like, for its OpenAPI document and for what it reads."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from feedback.contract.states import State

DONE: Final[dict[str, Any]] = {
    "v": "000019",
    "id": "order-17",
    "type": "payment.create",
    "state": "done",
    "code": "ok",
    "attempt": 1,
    "at": "2026-05-01T12:00:00.123456Z",
    "fingerprint": "5a1f0f0f4f1f4c0ca3b2d7c51ef0a1b2",
    "result": {"paid": 5},
}
ACCEPTED: Final[dict[str, Any]] = {
    "v": "000001",
    "id": "order-17",
    "type": "payment.create",
    "state": "accepted",
    "code": "ok",
    "attempt": 0,
    "at": "2026-05-01T12:00:00.123456Z",
    "fingerprint": "5a1f0f0f4f1f4c0ca3b2d7c51ef0a1b2",
}
UNKNOWN: Final[dict[str, Any]] = {"id": "order-18", "state": "unknown"}
MOVED: Final[dict[str, Any]] = {
    "id": "order-17",
    "type": "payment.create",
    "from_state": "dead",
    "state": "waiting",
    "code": "retried",
    "attempt": 1,
    "run": 5,
    "at": "2026-05-01T12:00:00Z",
    "due_at": "2026-05-01T12:00:00Z",
}


class StatusBody(BaseModel):
    """The status of a request, as Redis has it: see the contract."""

    model_config = ConfigDict(title="Status", json_schema_extra={"examples": [DONE, ACCEPTED]})

    v: str = Field(pattern="^[0-9]{6}$", description="Orders the statuses of one id.")
    id: str
    type: str
    state: State
    code: str
    attempt: int
    at: AwareDatetime
    fingerprint: str = Field(default="", description="Of the payload, in hex; may be missing.")
    result: Any = Field(default=None, description="What the handler returned.")
    error: str = ""
    reason: str = ""
    retry_at: AwareDatetime | None = None
    superseded_by: str = ""
    journaled: bool = Field(
        default=True, description="False where no row of the journal stands behind a failure."
    )


class UnknownBody(BaseModel):
    """Of a request that nothing is known of."""

    model_config = ConfigDict(title="Unknown", json_schema_extra={"examples": [UNKNOWN]})

    id: str
    state: Literal["unknown"]


class MovedBody(BaseModel):
    """A request or a dead letter after an operator's move."""

    model_config = ConfigDict(title="Moved", json_schema_extra={"examples": [MOVED]})

    id: str
    type: str | None = None
    from_state: str
    state: str
    code: str | None = None
    attempt: int | None = None
    run: int | None = None
    at: AwareDatetime | None = None
    due_at: AwareDatetime | None = None


class ProblemBody(BaseModel):
    """What went wrong (RFC 9457)."""

    model_config = ConfigDict(title="Problem", extra="allow")

    type: str
    title: str
    status: int
    detail: str
    id: str = Field(default="", description="Of the request that it is about.")
    state: str = Field(default="", description="Of that request, where it does not allow a move.")


class AskedBody(BaseModel):
    """What comes with every move."""

    model_config = ConfigDict(extra="forbid")

    why: Annotated[str, Field(max_length=1000, pattern=r"^[^\x00]*$")] | None = Field(
        default=None, description="Kept, and told to the producer.", examples=["card was blocked"]
    )


class MoveBody(AskedBody):
    """What an operator says of a move."""


class CancelBody(AskedBody):
    """Of the end of a request."""

    wait: float = Field(
        default=20.0, ge=0, le=60, description="Seconds for one that runs to come to its end."
    )


class ResolveBody(AskedBody):
    """What is true of a request in doubt."""

    as_: Literal["done", "failed", "retry"] = Field(
        alias="as",
        description="Its effect happened, it did not, or it did not and it runs again.",
    )
    result: Any = Field(default=None, description="What it returned, where it is done.")
    run: Annotated[int, Field(strict=True, ge=0, lt=2**31)] | None = Field(
        default=None,
        description="The run that this is true of: 409 where another one is in doubt by now.",
        examples=[3],
    )


class LetterBody(AskedBody):
    """What becomes of a dead letter."""

    id: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="The id that a message gets."
    )
    type: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="The type that a message gets."
    )
