"""The page of limits, before the real ones."""

from __future__ import annotations

import re

import httpx

from consumer.config.settings import Settings
from consumer.gateway.limits_board import RedisLimitsBoard
from processing.cluster.instances import connect
from processing.cluster.limits import ClusterLimits, RedisLimitsStore, Setting, TypeLimit
from stack import Stack
from tests.support.pages import fields
from tests.support.visitors import made

PAY = "payment.create"


def form_with(page: str, button: str, type_: str = "") -> str:
    """The form that has this button, of a type where one is given."""
    forms = re.findall(r"<form.*?</form>", page, re.DOTALL)
    return next(one for one in forms if f">{button}</button>" in one and type_ in one)


def test_a_page_that_is_old_undoes_no_limit_that_somebody_has_set_since(
    stack: Stack, prefix: str
) -> None:
    bench = made()
    assert bench.parts.pages is not None
    bench.parts.pages.limits = RedisLimitsBoard(
        Settings(redis_url=stack.redis, redis_prefix=prefix)
    )

    async def scenario(http: httpx.AsyncClient) -> None:
        page = (await http.get("/ui/limits")).text
        of_type = fields(form_with(page, "Set", PAY)) | {"action": "set"}
        of_all = fields(form_with(page, "Set", 'name="workers"')) | {"action": "all"}
        # Meanwhile somebody else sets and takes away.
        others.change({Setting("total", PAY): 1, Setting("workers"): None})
        sent = of_type | {"total": "8", "instance": "2"}
        assert (await http.post("/ui/limits", data=sent)).status_code == 200
        sent = of_all | {"workers": "3", "workers_total": "9"}
        assert (await http.post("/ui/limits", data=sent)).status_code == 200
        assert others.read() == ClusterLimits(None, 9, {PAY: TypeLimit(total=1, instance=2)})
        same = await http.post("/ui/limits", data=of_type | {"total": "8", "instance": "4"})
        assert "nothing was changed" in same.text
        # What is emptied is taken away, and so nothing else is.
        sent = of_type | {"total": "", "instance": "4"}
        assert (await http.post("/ui/limits", data=sent)).status_code == 200
        assert others.read() == ClusterLimits(None, 9, {PAY: TypeLimit(instance=2)})

    with connect(stack.redis) as client:
        others = RedisLimitsStore(client, prefix)
        others.change(
            {Setting("total", PAY): 8, Setting("instance", PAY): 4, Setting("workers"): 3}
        )
        bench.run(scenario)
        client.delete(f"{prefix}:limits")
