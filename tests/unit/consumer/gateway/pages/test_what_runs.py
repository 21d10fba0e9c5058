"""What runs right now, on pages, while the instances are not heard of."""

from __future__ import annotations

import httpx
import pytest

from consumer.admin.overview import Look
from consumer.gateway.pages.services import running_in
from consumer.gateway.pages.snapshots import NOT_YET, Snapshot
from tests.support.pages import instance
from tests.support.visitors import made

AWAY = "Redis does not answer"
UNASKED: Snapshot[Look] = Snapshot(None, None, NOT_YET)


@pytest.mark.parametrize(
    "found,problem",
    [
        (UNASKED, NOT_YET),
        (Snapshot(Look(problems={"instances": AWAY}), None), AWAY),
    ],
)
def test_that_nothing_runs_is_not_said_where_nobody_knows(
    found: Snapshot[Look], problem: str
) -> None:
    assert running_in(found) == Snapshot(None, None, problem)
    nothing = Look(instances=[instance(running_requests=[])])
    assert running_in(Snapshot(nothing, None)) == Snapshot([], None)


def test_pages_say_why_it_is_not_known() -> None:
    bench = made()

    async def scenario(http: httpx.AsyncClient) -> None:
        places = ("/ui/requests?state=running", "/ui/requests/r1")
        for place in places:
            assert "not known" not in (await http.get(place)).text
        bench.services.found = Look(problems={"instances": AWAY})
        for place in places:
            page = (await http.get(place)).text
            assert f"is not known: {AWAY}" in page
        assert "not known" not in (await http.get("/ui/requests?state=dead")).text

    bench.run(scenario)
