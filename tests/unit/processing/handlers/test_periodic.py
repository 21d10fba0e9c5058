"""What `@app.periodic` declares, and what it refuses."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel

from feedback.contract.payloads import parse_json
from feedback.contract.schedule import Schedule, tick_of
from processing import App, RegistrationError, Request, Tick
from processing.testing import run


def declared(cron: str = "0 6 * * mon-fri", type_: str = "report", **options: Any) -> Schedule:
    app = App()

    @app.periodic(cron, **options)
    @app.handler(type_)
    def report(payload: Any) -> None: ...

    [schedule] = app.schedules.values()
    return schedule


def test_a_handler_comes_by_the_clock_and_can_be_sent_all_the_same() -> None:
    app = App()

    @app.periodic("0 6 * * mon-fri", tz="Europe/Oslo")
    @app.periodic("0 12 * * sun", name="weekly", missed="skip", payload={"week": True})
    @app.handler("report", effect="none")
    def report(payload: dict[str, Any]) -> Any:
        return payload

    assert list(app.schedules.values()) == [
        Schedule("weekly", "report", "0 12 * * sun", "UTC", "skip", b'{"week":true}'),
        Schedule("report", "report", "0 6 * * mon-fri", "Europe/Oslo", "latest", None),
    ]
    assert run(app, report, {"week": 1}).result == {"week": 1}


def test_without_a_payload_of_its_own_it_gets_the_tick() -> None:
    app = App()

    @app.periodic("0 6 * * *", name="daily")
    @app.handler("report", effect="none")
    def report(tick: Tick) -> str:
        return f"{tick.schedule} of {tick.at:%d %B}"

    at = Tick.model_validate({"schedule": "x", "at": "2026-11-23T05:00:00Z"}).at
    made = tick_of(app.schedules["daily"], at)
    assert run(app, report, parse_json(made.payload)).result == "daily of 23 November"


@pytest.mark.parametrize(
    "options, said",
    [
        ({"cron": "0 6 * *"}, "five fields"),
        ({"cron": 6}, "five fields"),
        ({"tz": "Europe/Olso"}, "no time zone 'Europe/Olso'"),
        ({"missed": "each"}, "missed='each': one of latest, all, skip"),
        ({"name": "x" * 190}, "at most 179"),
        ({"name": ""}, "is empty"),
        ({"payload": object()}, "periodic '0 6 \\* \\* mon-fri'"),
    ],
)
def test_what_means_nothing_is_refused_where_it_stands(options: Any, said: str) -> None:
    with pytest.raises(RegistrationError, match=said) as caught:
        declared(**options)
    assert "test_periodic.py" in str(caught.value)


def test_one_name_is_one_schedule() -> None:
    app = App()

    @app.handler("report")
    def report(payload: Any) -> None: ...

    app.periodic("0 6 * * *")(report)
    with pytest.raises(RegistrationError, match="'report' already"):
        app.periodic("0 7 * * *")(report)


def test_what_is_no_handler_yet_is_told_where_to_stand() -> None:
    app = App()
    with pytest.raises(RegistrationError, match=r"above @app.handler"):
        app.periodic("0 6 * * *")(lambda payload: None)
    with pytest.raises(RegistrationError, match="lacks its argument"):
        app.periodic(lambda payload: None)  # type: ignore[arg-type]


class Order(BaseModel):
    article: str


@pytest.mark.parametrize(
    "payload, said",
    [
        (None, "a Tick is not what the handler takes: the payload is no Order: article: Field req"),
        ({"artikel": "x"}, "its payload= is not what the handler takes: .*article: Field required"),
        (Order(article="x"), ""),
    ],
)
@pytest.mark.parametrize("batch", [False, True])
def test_a_handler_that_cannot_take_its_ticks_does_not_start(
    payload: Any, said: str, batch: bool
) -> None:
    app = App()
    schedule = app.periodic("0 6 * * *", payload=payload)
    if batch:

        @schedule
        @app.batch_handler("stock")
        def stock(orders: list[Request[Order]], tx: Any) -> list[Any]: ...

    else:

        @schedule
        @app.handler("stock")
        def stock_one(order: Order) -> None: ...

    if not said:
        app.start_worker()
        return
    with pytest.raises(RegistrationError, match=said) as caught:
        app.start_worker()
    assert "periodic '0 6 * * *', " in str(caught.value)
    assert "test_periodic.py" in str(caught.value)


@pytest.mark.parametrize("error", [LookupError, ValueError, AssertionError])
def test_what_a_validator_says_when_the_worker_starts_is_no_mistake_of_the_schedule(
    error: type[Exception],
) -> None:
    def look_up(article: str) -> str:
        raise error("the catalogue is not loaded yet")

    app = App()

    @app.periodic("0 6 * * *", payload="screw")
    @app.handler("stock")
    def stock(article: Annotated[str, AfterValidator(look_up)]) -> None: ...

    app.start_worker()
