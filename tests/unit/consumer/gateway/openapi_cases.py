"""The gateway against its own OpenAPI document, for pytest with schemathesis: test_openapi.py."""

from __future__ import annotations

import os
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from feedback.contract.states import State
from tests.support.gateway import GatewayBench, bearer, key

bench = GatewayBench(gateway_keys={"all": key("send", "read", "operate")})
bench.operator.letters = [{"kind": "message", "id": 3, "type": "a.b"}]
bench.journal.put("order-17", State.DONE, result={"paid": 5})


async def outer(scope: Any, receive: Any, send: Any) -> None:
    """The gateway, which a client that comes and goes does not end."""
    if scope["type"] != "lifespan":
        await bench.app(scope, receive, send)
        return
    for _ in range(2):
        await send({"type": f"{(await receive())['type']}.complete"})


schema = schemathesis.openapi.from_asgi("/openapi.json", outer)
EXAMPLES = int(os.environ.get("ONCEPOOL_TEST_GATEWAY_EXAMPLES", "5"))
"""More find more, and take longer."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@schema.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
def test_what_it_answers_is_what_it_says(case: Any) -> None:
    case.headers = {**(case.headers or {}), **bearer()}
    for name in ("wait",):
        if name in (case.query or {}):
            case.query[name] = 0
    case.headers.pop("Prefer", None)
    case.call_and_validate(checks=CHECKS)
