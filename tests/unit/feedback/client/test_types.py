"""What a type checker knows of a call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from dataclasses import dataclass
from typing import Any

from feedback import AsyncClient, Client, Status
from processing import App, Request

app = App()

@dataclass
class Receipt:
    number: int

@app.handler("payment.create")
def pay(payment: dict[str, Any], request: Request) -> Receipt:
    return Receipt(payment["order"])

@app.batch_handler("payment.list")
def pay_many(payments: list[dict[str, Any]]) -> list[Receipt]:
    return [Receipt(1) for _ in payments]

@app.handler("payment.ask", effect="external")
async def ask(payment: dict[str, Any]) -> Receipt:
    return Receipt(1)

def use(client: Client, kept: Status) -> None:
    reveal_type(client.call(pay, {"order": 17}, timeout=60, key="a"))
    reveal_type(client.call(pay_many, {}).result)
    reveal_type(client.call("payment.create", {}))
    reveal_type(kept.result)
    client.call(pay, {}).result.nothing
    reveal_type(client.call(ask, {}))

async def use_in_loop(client: AsyncClient) -> None:
    reveal_type(await client.call(pay, {"order": 17}, timeout=60, key="a"))
    reveal_type((await client.call(pay_many, {})).result)
    reveal_type(await client.call("payment.create", {}))
    reveal_type(await client.submit(pay, {}))
    reveal_type(await client.call(ask, {}))
"""


@pytest.mark.long
def test_a_call_of_a_handler_has_its_result_type(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\nfollow_imports = silent\n")

    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    notes = [line.partition("note: ")[2] for line in done.stdout.splitlines() if "note: R" in line]
    assert notes == [
        'Revealed type is "feedback.status.status.Status[program.Receipt]"',
        'Revealed type is "Any"',
        'Revealed type is "feedback.status.status.Status[Any]"',
        'Revealed type is "Any"',
        'Revealed type is "feedback.status.status.Status[program.Receipt]"',
        'Revealed type is "feedback.status.status.Status[program.Receipt]"',
        'Revealed type is "Any"',
        'Revealed type is "feedback.status.status.Status[Any]"',
        'Revealed type is "str"',
        'Revealed type is "feedback.status.status.Status[program.Receipt]"',
    ], done.stdout
    (error,) = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert '"Receipt" has no attribute "nothing"' in error
