from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

import psycopg
from jsonschema import Draft7Validator
from pydantic import BaseModel, Field, PlainValidator
from typer.testing import CliRunner
from typing_extensions import TypedDict

from consumer import cli
from consumer.admin.asyncapi import HEADERS, RequestPlace, asyncapi_document
from processing import App, Request
from tests.support.asyncapi_rules import broken

Document = dict[str, Any]


class Address(BaseModel):
    street: str
    tag: Literal["home"] = "home"


class Box(BaseModel):
    size: tuple[int, int]
    tag: Literal["box"] = "box"


class Letter(BaseModel):
    to: Annotated[Address | Box, Field(discriminator="tag")]
    copies: Annotated[int, Field(ge=3, multiple_of=2)]
    at: datetime


@dataclass
class Fee:
    """What it costs."""

    cents: int


class Line(TypedDict):
    article: str


class Node(BaseModel):
    child: Node


class Odd(BaseModel):
    code: Annotated[str, Field(pattern="^[A-Z]{7}$")]
    own: Annotated[Any, PlainValidator(str)] = None


def make_app() -> App:
    app = App()

    @app.handler("letter.send", timeout=5, retries=2)
    def send(letter: Letter, tx: psycopg.Cursor) -> Fee:
        """Sends a letter.

        And more.
        """
        return Fee(1)

    @app.handler("fee.take", effect="external")
    def take(fee: Fee) -> None: ...

    @app.batch_handler("lines/count")
    def count(lines: list[Request[Line]]) -> list[int]:
        return [1 for _ in lines]

    @app.handler("lines count")
    def plain(lines: dict) -> dict: ...  # type: ignore[type-arg]

    @app.handler("file.keep")
    def keep(content: bytes) -> None: ...

    @app.handler("endless")
    def endless(node: Node) -> None: ...

    @app.handler("odd")
    def odd(given: Odd) -> None: ...

    @app.decoder("erp")
    def decode(message: Any) -> Any: ...

    return app


def document() -> Document:
    place = RequestPlace(group="post", topics=["letters", "erp"], servers="a:9092, b:9092")
    made: Document = asyncapi_document(make_app(), place, version="2.1.0")
    return json.loads(json.dumps(made))


def validator(made: Document, schema: Any) -> Draft7Validator:
    Draft7Validator.check_schema(schema)
    return Draft7Validator({**schema, "components": made["components"]})


def test_each_type_is_a_message_of_each_topic_but_those_with_a_decoder() -> None:
    made = document()
    messages = made["components"]["messages"]

    assert made["asyncapi"] == "3.0.0"
    assert (made["info"]["title"], made["info"]["version"]) == ("post", "2.1.0")
    assert [server["host"] for server in made["servers"].values()] == ["a:9092", "b:9092"]
    assert [m["name"] for m in messages.values()] == list(make_app().handlers)
    assert {"lines_count", "lines_count-2"} <= messages.keys()
    assert made["channels"]["letters"]["messages"].keys() == messages.keys()
    assert "messages" not in made["channels"]["erp"]
    assert len(made["operations"]) == len(messages)
    assert {o["action"] for o in made["operations"].values()} == {"receive"}
    assert broken(made) == []


def test_payloads_have_the_schemas_of_their_annotations() -> None:
    made = document()
    messages = made["components"]["messages"]

    letter = validator(made, messages["letter.send"]["payload"])
    home = {"street": "Elm", "tag": "home"}
    assert letter.is_valid({"to": home, "copies": 4, "at": "2030-05-17T12:30:00Z"})
    assert letter.is_valid({"to": {"size": [1, 2], "tag": "box"}, "copies": 4, "at": "x"})
    assert not letter.is_valid({"to": {"size": [1, "b"]}, "copies": 4, "at": "x"})
    assert not letter.is_valid({"to": home, "copies": 3, "at": "2030-05-17T12:30:00Z"})
    assert validator(made, messages["fee.take"]["payload"]).is_valid({"cents": 1})
    assert not validator(made, messages["lines_count"]["payload"]).is_valid({})
    assert messages["lines_count-2"]["payload"] == {"type": "object"}
    assert messages["file.keep"]["contentType"] == "application/octet-stream"
    assert "payload" not in messages["file.keep"]
    assert "discriminator" not in json.dumps(made)
    about = messages["letter.send"]["x-oncepool"]
    assert (about["effect"], about["attempts"], about["timeout"]) == ("transaction", 3, 5)
    assert validator(made, about["result"]).is_valid({"cents": 1})
    assert messages["letter.send"]["summary"] == "Sends a letter."


def test_headers_are_those_of_the_contract_with_the_type() -> None:
    made = document()
    headers = validator(made, made["components"]["messages"]["fee.take"]["headers"])

    assert headers.is_valid({"ce_id": "1", "ce_type": "fee.take", "own": "x"})
    assert not headers.is_valid({"ce_id": "1", "ce_type": "fee.give"})
    assert not headers.is_valid({"ce_type": "fee.take"})
    assert made["components"]["schemas"][HEADERS]["required"] == ["ce_id", "ce_type"]


def test_examples_are_such_that_handlers_take_them() -> None:
    made = document()
    messages = made["components"]["messages"]

    for key in ("letter.send", "fee.take", "lines_count"):
        (example,) = messages[key]["examples"]
        assert validator(made, messages[key]["payload"]).is_valid(example["payload"])
        assert validator(made, messages[key]["headers"]).is_valid(example["headers"])
    assert messages["letter.send"]["examples"][0]["payload"]["copies"] == 4
    # Rather none than one that is refused.
    assert not any("examples" in messages[key] for key in ("endless", "odd", "file.keep"))


def test_the_command_prints_the_shop_s() -> None:
    arguments = ["asyncapi", "examples.shop.app:app", "--kafka-topics", "shop"]
    people = CliRunner().invoke(cli.app, arguments)
    programs = CliRunner().invoke(cli.app, [*arguments, "--json"])

    assert people.exit_code == programs.exit_code == 0, people.output
    made = json.loads(programs.stdout)
    assert made == json.loads(people.stdout)
    assert broken(made) == []
    assert len(programs.stdout.splitlines()) == 1 < len(people.stdout.splitlines())
    assert "servers" not in made
    assert all("examples" in m for m in made["components"]["messages"].values())
    assert CliRunner().invoke(cli.app, arguments[:2]).exit_code == 1
