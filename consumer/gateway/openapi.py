"""The OpenAPI document: what each call may be answered with, and examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI

from consumer.gateway.models import (
    ACCEPTED,
    DONE,
    MOVED,
    UNKNOWN,
    MovedBody,
    ProblemBody,
    StatusBody,
    UnknownBody,
)
from consumer.gateway.problems import MEDIA_TYPE, TITLES

_PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}
_STATUS: Final = {"$ref": "#/components/schemas/Status"}
_MOVED: Final = {"$ref": "#/components/schemas/Moved"}
_UNKNOWN: Final = {"$ref": "#/components/schemas/Unknown"}
_KEY: Final = "Bearer"

_SAID: Final = {
    400: ("invalid_request", "What was sent can't be read."),
    401: ("unauthorized", "No valid API key."),
    403: ("forbidden", "The API key is not for that, or a page of another site calls."),
    404: ("unknown", "Nothing is known of it."),
    408: ("timeout", "The body came too slowly."),
    409: ("refused", "Its state does not allow it, or its first request is not answered yet."),
    413: ("too_large", "The body, or the answer, is longer than it may be."),
    415: ("unsupported_media_type", "Structured events, forms and encoded bodies are not taken."),
    422: ("another_payload", "The key belongs to a request with another payload."),
    429: ("too_many_requests", "The rate of the API key is used up: Retry-After says how long."),
    431: ("too_large", "The headers are too long."),
    500: ("error", "Something went wrong in the gateway."),
    501: ("not_configured", "The gateway has no journal, or no package for metrics."),
    503: ("unavailable", "A service does not answer: Retry-After says when to try again."),
    504: ("no_answer", "The instance that runs it did not answer in time."),
}


_SECONDS: Final = {"type": "integer", "minimum": 0}
_HEADERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "Location": ("Where its status is.", {"type": "string"}),
    "Preference-Applied": ("What of Prefer counted.", {"type": "string"}),
    "Retry-After": ("Seconds after which to ask, or to try, again.", _SECONDS),
    "WWW-Authenticate": ("What to authenticate with.", {"type": "string"}),
}
_ALWAYS: Final = {
    401: "WWW-Authenticate",
    429: "Retry-After",
    503: "Retry-After",
    504: "Retry-After",
}
"""What a problem of this status always comes with."""


def _headers(names: Mapping[str, bool]) -> dict[str, Any]:
    """Name -> whether the answer always has it."""
    return {
        name: {"description": said, "schema": schema, "required": names[name]}
        for name, (said, schema) in _HEADERS.items()
        if name in names
    }


def _problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: _problem(code) for code in codes}


def _problem(status: int) -> dict[str, Any]:
    code, description = _SAID[status]
    example = {
        "type": f"urn:oncepool:problem:{code}",
        "title": TITLES[code],
        "status": status,
        "detail": description,
    }
    return {
        "description": description,
        "headers": _headers({_ALWAYS[status]: True} if status in _ALWAYS else {}),
        "content": {MEDIA_TYPE: {"schema": _PROBLEM, "example": example}},
    }


def _answer(
    description: str, schema: Any, example: Any, headers: Mapping[str, bool] | None = None
) -> dict[str, Any]:
    return {
        "description": description,
        "headers": _headers(headers or {}),
        "content": {"application/json": {"schema": schema, "example": example}},
    }


def _header(name: str, description: str, example: str, schema: Any = None) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": schema or {"type": "string"},
        "example": example,
    }


_ALL: Final = (400, 401, 403, 429, 431, 500, 503)
_LOCATED: Final = {"Location": True, "Preference-Applied": False}
_IN_PROGRESS: Final = {**_problem(409), "headers": _headers({"Retry-After": True})}
"""The first request of the key is not answered yet."""
_SECURITY: Final[list[dict[str, list[str]]]] = [{_KEY: []}]
_TIME: Final = {"type": "string", "format": "date-time"}

_PARAMETERS: Final = [
    _header("Idempotency-Key", "The request's id: the same one is the same request.", "order-17",
            {"type": "string", "minLength": 1, "maxLength": 200}),
    _header("Prefer", "`respond-async`, and `wait=N` seconds for a settled state.", "wait=10"),
    _header("ce-partitionkey", "Requests with one key run one after the other.", "customer-4"),
    _header("ce-reference", "For types that coalesce.", "article-9"),
    _header("ce-notbefore", "It is not run before.", "2030-05-01T12:00:00Z", _TIME),
    _header("ce-expirytime", "It is not started after.", "2030-05-01T13:00:00Z", _TIME),
    _header("ce-timeout", "Seconds that one run may take.", "30",
            {"type": "number", "exclusiveMinimum": 0}),
    _header("traceparent", "W3C trace context.",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
]  # fmt: skip

SEND: Final[dict[str, Any]] = {
    "status_code": 202,
    "responses": {
        200: _answer("It is final already.", _STATUS, DONE, _LOCATED),
        202: _answer(
            "It is safe: the brokers, or the outbox, have it.",
            _STATUS,
            ACCEPTED,
            {**_LOCATED, "Retry-After": False},
        ),
        **_problems(*_ALL, 408, 413, 415, 422),
        409: _IN_PROGRESS,
    },
    "openapi_extra": {
        "parameters": _PARAMETERS,
        "security": _SECURITY,
        "requestBody": {
            "required": True,
            "description": "The payload; JSON unless Content-Type says otherwise.",
            "content": {
                "application/json": {"schema": {}, "example": {"order": 17, "amount": 5}},
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            },
        },
    },
}
STATUS: Final[dict[str, Any]] = {
    "responses": {
        200: _answer("Its status.", _STATUS, DONE, {"Retry-After": False}),
        **_problems(*_ALL, 404),
    },
    "openapi_extra": {"security": _SECURITY},
}
LIST: Final[dict[str, Any]] = {
    "responses": {
        200: _answer(
            "A status for each id.",
            {"type": "array", "items": {"anyOf": [_STATUS, _UNKNOWN]}},
            [DONE, UNKNOWN],
        ),
        **_problems(*_ALL, 413),
    },
    "openapi_extra": {"security": _SECURITY},
}
MOVE: Final[dict[str, Any]] = {
    "responses": {
        200: _answer("It was moved.", _MOVED, MOVED),
        **_problems(*_ALL, 404, 408, 409, 413, 415, 501, 504),
    },
    "openapi_extra": {"security": _SECURITY},
}
_LETTER_EXAMPLE: Final = {
    "kind": "message", "id": 3, "request_id": None, "reason": "malformed", "topic": "orders",
    "partition": 0, "kafka_offset": 17, "detail": "header ce_id is missing",
}  # fmt: skip
LETTERS: Final[dict[str, Any]] = {
    "responses": {
        200: _answer(
            "The latest first.", {"type": "array", "items": {"type": "object"}}, [_LETTER_EXAMPLE]
        ),
        **_problems(*_ALL, 501),
    },
    "openapi_extra": {"security": _SECURITY},
}
LETTER: Final[dict[str, Any]] = {
    "responses": {
        200: _answer("All of it.", {"type": "object"}, _LETTER_EXAMPLE),
        **_problems(*_ALL, 404, 409, 501),
    },
    "openapi_extra": {"security": _SECURITY},
}
_TEXT: Final = {"text/plain": {"schema": {"type": "string"}, "example": "ok\n"}}
_LISTED: Final = {"application/json": {"schema": {"type": "object"}}}
HEALTH: Final[dict[str, Any]] = {
    "responses": {
        200: {"description": "Yes.", "content": {**_TEXT, **_LISTED}},
        503: {"description": "No.", "content": {**_TEXT, **_LISTED}},
        **_problems(400, 403, 431),
    },
}
METRICS: Final[dict[str, Any]] = {
    "responses": {
        200: {"description": "Prometheus's text.", "content": _TEXT},
        **_problems(*_ALL, 501),
    },
    "openapi_extra": {"security": _SECURITY},
}


def document(app: FastAPI) -> dict[str, Any]:
    """What the framework says of the routes, without what is not so.

    A parameter that can't be read is answered with 400, as 422 is the answer to another payload.
    """
    made = FastAPI.openapi(app)
    components = made.setdefault("components", {})
    schemas: dict[str, Any] = components.setdefault("schemas", {})
    for model in (StatusBody, UnknownBody, MovedBody, ProblemBody):
        name = model.model_config["title"]
        schemas[str(name)] = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schemas[str(name)].pop("$defs", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    components["securitySchemes"] = {_KEY: {"type": "http", "scheme": "bearer"}}
    for path in made["paths"].values():
        for operation in path.values():
            answer = operation["responses"].get("422", {})
            if "application/json" in answer.get("content", {}):
                del operation["responses"]["422"]
            for code, said in operation["responses"].items():
                if code.startswith(("4", "5")) and MEDIA_TYPE in said.get("content", {}):
                    said["content"].pop("application/json", None)
    return made
