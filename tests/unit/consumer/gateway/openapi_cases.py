"""The gateway against its own OpenAPI document, for pytest with schemathesis.

tests/support/openapi_play.py has it play, against one in memory or one that listens.
"""

from __future__ import annotations

import os
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from feedback.contract.states import State
from tests.support.gateway import GatewayBench, bearer, key
from tests.support.openapi_play import URL

bench = GatewayBench(gateway_keys={"all": key("send", "read", "operate")}, gateway_max_wait=1)
bench.operator.letters = [{"kind": "message", "id": 3, "type": "a.b"}]
bench.journal.put("order-17", State.DONE, result={"paid": 5})


async def outer(scope: Any, receive: Any, send: Any) -> None:
    """The gateway, which a client that comes and goes does not end."""
    if scope["type"] != "lifespan":
        await bench.app(scope, receive, send)
        return
    for _ in range(2):
        await send({"type": f"{(await receive())['type']}.complete"})


LISTENS = os.environ.get(URL)
schema = (
    schemathesis.openapi.from_url(f"{LISTENS}/openapi.json")
    if LISTENS
    else schemathesis.openapi.from_asgi("/openapi.json", outer)
)
EXAMPLES = int(os.environ.get("ONCEPOOL_TEST_GATEWAY_EXAMPLES", "5"))
"""More find more, and take longer."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    ignored_auth,
    unsupported_method,
]
bounded = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@schema.parametrize()
@bounded
def test_what_it_answers_is_what_it_says(case: Any) -> None:
    if "wait" in (case.query or {}):
        case.query["wait"] = 0
    if case.headers:
        case.headers.pop("Prefer", None)
    # As options of the call: then it is known that they are what is asked for.
    case.call_and_validate(headers=bearer(), checks=CHECKS)


@schema.include(path="/requests/{type}", method="POST").parametrize()
@bounded
def test_a_wait_is_answered_as_it_says(case: Any) -> None:
    headers = {**bearer(), "Prefer": "respond-async, wait=1"}
    answer = case.call_and_validate(headers=headers, checks=CHECKS)
    if answer.status_code in (200, 202):
        assert answer.headers["preference-applied"][0].startswith("respond-async, wait=")
