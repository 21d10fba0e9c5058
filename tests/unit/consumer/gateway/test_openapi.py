"""The gateway and its own OpenAPI document."""

from __future__ import annotations

import jsonschema
import pytest

from consumer.gateway.problems import TITLES
from tests.support.gateway import GatewayBench
from tests.support.openapi_play import play

bench = GatewayBench()


@pytest.mark.long  # loads schemathesis
def test_what_it_answers_is_what_it_says() -> None:
    play()


def test_the_document_has_what_the_contract_names() -> None:
    made = bench.app.openapi()
    send = made["paths"]["/requests/{type}"]["post"]
    assert {"200", "202", "400", "409", "422", "503"} <= send["responses"].keys()
    headers = {code: answer["headers"] for code, answer in send["responses"].items()}
    assert headers["202"].keys() == {"Location", "Preference-Applied", "Retry-After"}
    assert "Location" in headers["200"]
    for code in ("409", "429", "503"):
        assert headers[code]["Retry-After"]["required"]
    assert headers["401"]["WWW-Authenticate"]["required"]
    cancel = made["paths"]["/requests/{id}/cancel"]["post"]["responses"]
    assert cancel["504"]["headers"]["Retry-After"]["required"]
    assert cancel["409"]["headers"] == {}, (
        "of a state that does not allow it nobody knows when it will"
    )
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
