"""The documents of `oncepool asyncapi` are such as AsyncAPI 3.0.0 wants them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from consumer.admin.asyncapi import RequestPlace, asyncapi_document
from examples.shop.app import app
from processing import App
from tests.support.asyncapi_rules import broken

VARIABLE = "ONCEPOOL_ASYNCAPI_SCHEMA"
MESSAGE = "shop.make_invoice"

Document = Any


def shop() -> Document:
    place = RequestPlace(group="shop", topics=["orders", "late"], servers="a:9092,b:9092")
    return json.loads(json.dumps(asyncapi_document(app, place, version="1.0.0")))


def bare() -> Document:
    return asyncapi_document(App(), RequestPlace(group="g", topics=["t"]), version="1.0.0")


def set_to(value: Any, *path: str | int) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        *way, last = path
        for part in way:
            document = document[part]
        document[last] = value

    return change


def without(*path: str | int) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        *way, last = path
        for part in way:
            document = document[part]
        del document[last]

    return change


PLACE = f"orders.{MESSAGE}"
ONE = ("components", "messages", MESSAGE)
WRONG = {
    "version": (set_to("2.6.0", "asyncapi"), "#/asyncapi"),
    "no title": (without("info", "title"), "without title"),
    "a name of 2.6": (set_to({}, "channels", "orders", "subscribe"), "subscribe is no field"),
    "a server's URL": (set_to("kafka://a:9092", "servers", "kafka-1", "host"), "#/servers/kafka-1"),
    "no protocol": (without("servers", "kafka-1", "protocol"), "without protocol"),
    "an address": (set_to(["orders"], "channels", "orders", "address"), "orders/address"),
    "publish": (set_to("publish", "operations", PLACE, "action"), f"{PLACE}/action"),
    "no channel": (without("operations", PLACE, "channel"), "without channel"),
    "a channel's name": (set_to({}, "operations", PLACE, "channel"), f"{PLACE}/channel"),
    "a lost message": (without("channels", "orders", "messages", MESSAGE), "leads nowhere"),
    "another channel's": (
        set_to({"$ref": f"#/channels/late/messages/{MESSAGE}"}, "operations", PLACE, "messages", 0),
        "not of the operation's channel",
    ),
    "a key": (set_to({}, "components", "messages", "a b"), "no key of a component"),
    "headers": (set_to({"type": "array"}, *ONE, "headers"), "headers: of an object"),
    "a schema": (set_to({"type": "text"}, *ONE, "payload"), f"{MESSAGE}/payload"),
    "a field": (set_to("x", *ONE, "schemaFormat"), "schemaFormat is no field"),
    "a media type": (set_to("json", *ONE, "contentType"), "no media type"),
    "a correlation": (set_to("ce_id", *ONE, "correlationId", "location"), "no runtime expression"),
    "an example": (set_to([{"name": "one"}], *ONE, "examples"), "neither headers nor payload"),
    "a binding": (
        set_to("9.9.9", "channels", "orders", "bindings", "kafka", "bindingVersion"),
        "there is no such one",
    ),
    "a group": (
        set_to("g", "operations", PLACE, "bindings", "kafka", "group"), "group is no field"
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", [shop, bare])
def test_what_is_made_keeps_to_the_rules(make: Callable[[], Document]) -> None:
    assert broken(make()) == []


@pytest.mark.parametrize("name", WRONG)
def test_the_rules_see_what_breaks_them(name: str) -> None:
    change, told = WRONG[name]
    document = shop()
    change(document)
    assert any(told in one for one in broken(document)), broken(document)


@pytest.mark.parametrize("make", [shop, bare])
def test_what_is_made_is_valid_by_the_official_schema(make: Callable[[], Document]) -> None:
    path = os.environ.get(VARIABLE)
    if path is None:
        pytest.skip(f"{VARIABLE} names no copy of AsyncAPI's schemas/3.0.0-without-$id.json")
    schema = json.loads(Path(path).read_text())
    wrong = [
        f"{one.json_path}: {one.message}" for one in Draft7Validator(schema).iter_errors(make())
    ]
    assert wrong == []
