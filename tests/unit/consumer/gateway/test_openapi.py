"""The gateway against its own OpenAPI document."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from consumer.gateway.problems import TITLES
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


def test_the_document_has_what_the_contract_names() -> None:
    made = bench.app.openapi()
    send = made["paths"]["/requests/{type}"]["post"]
    assert {"200", "202", "400", "409", "422", "503"} <= send["responses"].keys()
    assert "Location" in send["responses"]["202"]["headers"]
    for path, method in (
        ("/requests/{id}", "get"),
        ("/requests/{id}/retry", "post"),
        ("/requests/{id}/cancel", "post"),
        ("/requests/{id}/resolve", "post"),
        ("/livez", "get"),
        ("/readyz", "get"),
        ("/metrics", "get"),
    ):
        assert method in made["paths"][path]
    get = made["paths"]["/requests/{id}"]["get"]
    assert "422" not in get["responses"]


def test_its_examples_are_what_its_schemas_say() -> None:
    made = bench.app.openapi()
    components = {"components": made["components"]}
    seen = 0
    for path in made["paths"].values():
        for operation in path.values():
            for answer in operation["responses"].values():
                for said in answer["content"].values():
                    if "example" in said:
                        jsonschema.validate(said["example"], {**said["schema"], **components})
                        seen += 1
    assert seen > 50


@pytest.mark.parametrize("code", TITLES)
def test_each_problem_has_a_title(code: str) -> None:
    assert TITLES[code]


def test_the_page_shows_calls_that_there_are() -> None:
    """Each curl command of docs/gateway.md, against the document."""
    page = (Path(__file__).parents[4] / "docs" / "gateway.md").read_text().replace("\\\n", " ")
    commands = [line for line in page.splitlines() if line.startswith("curl ")]
    assert len(commands) >= 12
    paths = bench.app.openapi()["paths"]
    for command in commands:
        words = shlex.split(command, comments=True)
        url = next(word for word in words if word.startswith("http://"))
        path = url.removeprefix("http://127.0.0.1:8080").partition("?")[0]
        method = "post" if "POST" in words or "-d" in words else "get"
        matching = [
            known
            for known in paths
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", known), path) and method in paths[known]
        ]
        assert matching, command
