"""Callers of the gateway under chaos: POST with an Idempotency-Key, then GET until there is an end.

They follow docs/gateway.md and docs/contract.md and import nothing of the project: what has no
answer, or 503, is sent again with the same key, and so is what `failed` without having run.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections import defaultdict
from datetime import datetime
from typing import Any, NamedTuple

import httpx

from tests.chaos.real.gateway_facts import GatewayFacts
from tests.chaos.real.producer import FINAL, SETTLED, SendLedger
from tests.chaos.real.traffic import Item
from tests.chaos.real.witness import WITHOUT_ROW

AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504})
"""Answers after which the same call is made again; 500 is a wrong one all the same."""
GOOD = {"POST": frozenset({200, 202}), "GET": frozenset({200})}
NEVER = frozenset({500})
LONG_POLL = 4
PAUSE, LONGEST_PAUSE = 0.3, 3.0
ANSWER_WITHIN = 12.0
"""Seconds until a call is given up and made again."""
LISTED = 200
"""Ids in one look at many statuses."""


class Answer(NamedTuple):
    """What came back; `status` 0: nothing."""

    status: int
    body: Any = None


def heard(method: str, answer: Answer) -> str:
    """How the facts count it."""
    return f"{method} {answer.status or 'no answer'}"


def wrong_with(item: Item, method: str, answer: Answer) -> str:
    """Why no gateway should have answered so; "" where it may. Pure."""
    status, body = answer
    if status == 0 or (status in AGAIN and status not in NEVER):
        return ""
    if method == "GET" and status == 404:  # its status was lost before it ran
        return ""
    if status not in GOOD[method]:
        return f"{item.id}: {method} {status} {body!r:.150}"
    told = (body.get("id"), body.get("type")) if isinstance(body, dict) else ()
    return "" if told == (item.id, item.type) else f"{item.id}: {method} {status} {body!r:.150}"


class OpenRequest:
    """One request without its answer: what is to be done next. Pure."""

    def __init__(self, item: Item, now: float, patience: float) -> None:
        self.item, self.first = item, now
        self.due = now
        """When it is to be sent, or sent again."""
        self.end: tuple[str, str] | None = None
        """State and code that ended it."""
        self._patience = self._pause = patience
        self.longest = 8 * patience
        """Seconds until it is sent again, at most."""
        self._refused = self._heard = ""

    def sent(self, now: float) -> None:
        """The gateway has it, and says so."""
        self.due = now + self._pause
        self._pause = min(2 * self._pause, self.longest)

    def told(self, status: dict[str, Any], now: float) -> str:
        """Hears a status; what was refused with it, as `failed/shutdown`, else ""."""
        state, code = status["state"], status["code"]
        if (state in FINAL or state in self.item.ends) and code not in WITHOUT_ROW:
            self.end = (state, code)
        elif state in ("waiting", "running"):
            if (news := f"{status['v']} {status.get('retry_at')}") != self._heard:
                self._heard = news
                at = status.get("retry_at")
                begin = datetime.fromisoformat(at).timestamp() if at else now
                self.due = max(now, begin) + self._patience
        elif state in SETTLED and state != "dead" and status["v"] != self._refused:
            self._refused = status["v"]
            self.due = min(self.due, now + 0.5)
            return f"{state}/{code}"
        return ""


class GatewayCallers:
    """All of them, in one thread. Tells its ends to the ledger of the producer."""

    def __init__(self, url: str, ledger: SendLedger, patience: float) -> None:
        """`patience`: seconds without news after which a request is sent again, doubling."""
        self.facts = GatewayFacts()
        self.pending: dict[str, OpenRequest] = {}
        self.posts: defaultdict[str, list[float]] = defaultdict(list)
        """Id -> when each POST of it began, in seconds since the epoch."""
        self._url, self._ledger, self._patience = url, ledger, patience
        self._random = random.Random(url)
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(30)

    def take(self, item: Item) -> None:
        """Sends it and asks for it until it has an end. From any thread."""
        open_ = OpenRequest(item, time.time(), self._patience)
        self.pending[item.id] = open_
        self.facts.ids.add(item.id)
        self._loop.call_soon_threadsafe(self._begin, open_)

    def quiet(self) -> None:
        """What is pending is not waited for longer than once."""
        for open_ in list(self.pending.values()):
            open_.longest = self._patience
            open_.due = min(open_.due, time.time() + self._patience)

    def look(self, timeout: float) -> None:
        """Asks for the statuses of all, for `facts.last`."""
        looking = asyncio.run_coroutine_threadsafe(self._look(time.time() + timeout), self._loop)
        looking.result(timeout + 2 * ANSWER_WITHIN)

    def end(self) -> None:
        if self._thread.ident is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(30)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        limits = httpx.Limits(max_connections=200, max_keepalive_connections=50)
        self._http = httpx.AsyncClient(base_url=self._url, timeout=ANSWER_WITHIN, limits=limits)
        self._ready.set()
        try:
            self._loop.run_forever()
            for task in self._tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
            self._loop.run_until_complete(self._http.aclose())
        finally:
            self._loop.close()

    def _begin(self, open_: OpenRequest) -> None:
        task = self._loop.create_task(self._serve(open_))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.facts.wrong.append(f"a caller failed: {error!r:.300}")

    async def _serve(self, open_: OpenRequest) -> None:
        """Until it has an end."""
        item, pause, sends = open_.item, PAUSE, 0
        while open_.end is None:
            method = "POST" if open_.due <= time.time() else "GET"
            answer = await (self._post(item) if method == "POST" else self._get(item))
            now = time.time()
            if problem := wrong_with(item, method, answer):
                self.facts.wrong.append(problem)
            if answer.status not in GOOD[method]:
                if method == "POST" and answer.status not in AGAIN and answer.status != 0:
                    open_.sent(now)  # told as wrong: not to be asked for at once again
                pause = await self._pause_for(pause)
                continue
            if method == "POST":
                if sends:
                    self._ledger.resends["by HTTP"] += 1
                sends += 1
                open_.sent(now)
            if refused := open_.told(answer.body, now):
                self._ledger.refusals.append((now, item.id, refused))
            pause = PAUSE
            if open_.end is None:
                await asyncio.sleep(PAUSE)
        self._ledger.ends[item.id] = open_.end
        self._ledger.ended_at[item.id] = now = time.time()
        self._ledger.answered.append((open_.first, now))
        del self.pending[item.id]

    async def _pause_for(self, pause: float) -> float:
        """Waits so long; the next pause."""
        await asyncio.sleep(pause * self._random.uniform(0.5, 1))
        return min(2 * pause, LONGEST_PAUSE)

    async def _post(self, item: Item) -> Answer:
        headers = {"Idempotency-Key": f'"{item.id}"', "Content-Type": "application/json"}
        if item.key is not None:
            headers["ce-partitionkey"] = item.key.decode()
        if (due := dict(item.headers).get("ce_notbefore")) is not None:
            headers["ce-notbefore"] = due.decode()
        if self._random.random() < 0.3:  # the answer may come with it
            headers["Prefer"] = f"respond-async, wait={LONG_POLL}"
        self.posts[item.id].append(time.time())
        return await self._ask("POST", f"/requests/{item.type}", headers, content=item.value)

    async def _get(self, item: Item) -> Answer:
        wait = {"wait": LONG_POLL} if self._random.random() < 0.5 else {}
        return await self._ask("GET", f"/requests/{item.id}", {}, params=wait)

    async def _ask(self, method: str, path: str, headers: dict[str, str], **more: Any) -> Answer:
        answer = Answer(0)
        with contextlib.suppress(httpx.HTTPError, OSError):  # a TimeoutError is one, too
            async with asyncio.timeout(2 * ANSWER_WITHIN):
                found = await self._http.request(method, path, headers=headers, **more)
            body: Any = found.text
            with contextlib.suppress(ValueError):
                body = found.json()
            answer = Answer(found.status_code, body)
        self.facts.answers[heard(method, answer)] += 1
        return answer

    async def _look(self, until: float) -> None:
        names = sorted(self.facts.ids)
        for start in range(0, len(names), LISTED):
            ids = names[start : start + LISTED]
            while time.time() < until:
                answer = await self._ask("GET", "/requests", {}, params={"id": ids})
                if answer.status == 200:
                    self.facts.last |= {one["id"]: one["state"] for one in answer.body}
                    break
                await asyncio.sleep(PAUSE)
