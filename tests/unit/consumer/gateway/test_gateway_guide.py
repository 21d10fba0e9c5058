"""The curl commands of docs/gateway.md, entered as they stand there."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
from pathlib import Path

import pytest

from consumer.gateway.server import GatewayServer, configured
from feedback.contract.states import State
from tests.support.gateway import GatewayBench
from tests.support.tutorial import FENCE

PAGE = (Path(__file__).parents[4] / "docs" / "gateway.md").read_text()
PLACE = "http://127.0.0.1:8080"
CALL = 'set -e; curl() { command curl -sS --max-time 40 -w "\\n[%{http_code}]\\n" "$@"; }\n'
"""Each command says how it was answered."""
MOVES = ["retry", "cancel", "resolve", "dead", "retry_dead", "drop_dead"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="apt-get install curl")
def test_what_the_page_shows_is_answered_as_it_says() -> None:
    scripts = [block for language, block in FENCE.findall(PAGE) if language == "sh"]
    scripts = [block for block in scripts if block.startswith("curl ")]
    assert sum(block.count("curl ") for block in scripts) >= 12
    bench = GatewayBench()
    bench.operator.letters = [{"kind": "message", "id": 4, "type": "payment.create"}]
    first, *rest = asyncio.run(_entered(bench, scripts))

    # The first is shown with its answer; `...` stands for anything.
    shown = PAGE.partition("```\nHTTP/1.1 ")[2].partition("```")[0].strip().splitlines()
    for line in ["HTTP/1.1 " + shown[0], *filter(None, shown[1:])]:
        wanted = ".*".join(map(re.escape, line.split("...")))
        assert re.search(f"^{wanted}\r?$", first, re.MULTILINE), (line, first)
    assert '"state":"done"' in rest[0], "whoever waits hears of the end"
    answers = re.findall(r"^\[(\d+)\]$", "".join([first, *rest]), re.MULTILINE)
    assert answers[0] == "202"
    assert set(answers[1:]) == {"200"}, answers
    assert [asked[0] for asked in bench.operator.asked] == MOVES
    assert {one.id for one in bench.producer.envelopes()} == {"order-17", "order-18"}


async def _entered(bench: GatewayBench, scripts: list[str]) -> list[str]:
    """What each prints, while a consumer runs what is sent."""

    async def consume() -> None:
        done: set[str] = set()
        while True:
            for one in bench.producer.envelopes():
                # order-17 is looked at as it is accepted first.
                if one.id not in done and (one.id != "order-17" or len(printed) > 0):
                    done.add(one.id)
                    bench.say(one.id, State.DONE, type=one.type, result=b'{"paid":5}')
            await asyncio.sleep(0.02)

    printed: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = GatewayServer(configured(bench.settings, bench.app), bench.parts)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        consuming = asyncio.create_task(consume())
        here = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with asyncio.timeout(60):
            for script in scripts:
                shell = await asyncio.create_subprocess_exec(
                    "bash", "--norc", "-c", CALL + script.replace(PLACE, here),
                    stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
                )  # fmt: skip
                out, _ = await shell.communicate()
                printed.append(out.decode())
                assert shell.returncode == 0, printed[-1]
            assert consuming.cancel()
            server.handle_exit(15, None)
            await serving
    return printed
