from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI

from consumer.admin.journal import JournalUnreachable
from consumer.admin.moving import Ending
from consumer.gateway.operators import OperatorAnswer
from consumer.gateway.pages.journal_pages import MOST_CHOSEN
from consumer.gateway.path_names import in_path
from feedback.contract.states import State
from feedback.operations.dead_letter_actions import DEAD_LETTER
from feedback.operations.dead_letters import DeadLetterRef
from feedback.operations.explanations import Refusal
from feedback.operations.follow_ups import FollowUps
from feedback.operations.request_actions import By
from feedback.operations.statistics import Figures
from processing.cluster.limits import Setting
from tests.support.pages import NASTY, TRACE, fields, fields_of, instance, token
from tests.support.visitors import PAGES, SOME, keyed, log_in, made


def test_each_page_is_whole_safe_and_has_a_part_that_refreshes() -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        for path in PAGES:
            answer = await http.get(f"/ui{path}")
            assert answer.status_code == 200, (path, answer.text)
            assert NASTY not in answer.text
            assert "<h1>" in answer.text
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert " style=" not in answer.text
            assert "<style" not in answer.text
            assert answer.headers["cache-control"] == "no-store"
            # Else a browser would not say where a form comes from, and it would be refused.
            assert answer.headers["referrer-policy"] == "same-origin"
        for path in ("/", "/requests", "/requests/r1", "/dead-letters", "/audit"):
            part = await http.get(f"/ui{path}", headers={"X-Oncepool-Fragment": "1"})
            whole = await http.get(f"/ui{path}")
            assert "<html" not in part.text
            assert part.text.strip()[:200] in whole.text

    made().run(scenario)


def test_the_overview_counts_each_request_once() -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        page = (await http.get("/ui/")).text
        for figure in ("1,234,567", "4,321", "Ended a second", "done</a>", "failed</a>"):
            assert figure in page, figure
        assert "4,328" not in page
        assert "worker" in page

    made().run(scenario)


def test_the_overview_shows_the_times_of_the_types_that_are_asked_for() -> None:
    bench = made()
    times = bench.services.over_time.times
    now = int(times[0]["at"])
    times += [
        {"at": now, "type": f"t{n}", "n": n, "wait": [0.02, 0.04], "run": [0.3, 7.0]}
        for n in range(1, 5)
    ]
    assert bench.services.found.journal is not None
    [row] = bench.services.found.journal.types
    bench.services.found.journal = Figures([row, row | {"type": "t1"}], 0, 1, 0, 7200.0)
    bench.services.found.instances = [instance(running_requests=[])]

    async def scenario(http: httpx.AsyncClient) -> None:
        page = (await http.get("/ui/")).text
        assert "3 of 5 types" in page
        assert "t1 p95" not in page, "of the types those are drawn of which most ran"
        assert '<td class="n">20 ms, 40 ms</td><td class="n">300 ms, 7.0 s</td>' in page
        assert "oldest unfinished</dt><dd>2 h<" in page
        page = (await http.get("/ui/?type=t1*&last=15")).text
        assert "t1 p95" in page
        assert "a.b p95" not in page
        assert "of which most" not in page
        assert 'value="t1*"' in page
        assert page.count("requests?type=") == 1, "the table, too"
        for wrong in ("type=%00", f"type={'x' * 201}", "last=7", "last=x"):
            assert (await http.get(f"/ui/?{wrong}")).status_code == 400, wrong

    bench.run(scenario)


def test_the_all_clear_is_given_to_whom_the_journal_is_counted_for() -> None:
    """What is in doubt or dead of the key's own types may be there all the same."""
    bench = keyed()
    bench.services.found.limits = bench.services.found.outbox = None
    bench.services.found.journal = Figures([], 0, 0, 0)

    async def scenario(http: httpx.AsyncClient) -> None:
        clear = "Nothing needs anybody"
        await log_in(http)
        assert clear in (await http.get("/ui/")).text
        bench.services.found.journal = None  # as where it is not configured
        assert clear not in (await http.get("/ui/")).text
        bench.services.found.journal = Figures([], 0, 1, 0)
        http.cookies.clear()
        await log_in(http, SOME)
        page = (await http.get("/ui/")).text
        assert clear not in page
        assert "requests?state=in_doubt" in page

    bench.run(scenario)


def test_all_leads_to_pages_below_the_prefix() -> None:
    bench = made()
    outer = FastAPI()
    outer.mount("/before/oncepool", bench.app)
    bench.app = outer

    async def scenario(http: httpx.AsyncClient) -> None:
        start = await http.get("/before/oncepool/")
        assert start.headers["location"] == "/before/oncepool/ui/"
        for path in PAGES:
            answer = await http.get(f"/before/oncepool/ui{path}")
            assert answer.status_code == 200
            assert ' href="/ui' not in answer.text
            assert ' action="/ui' not in answer.text
            assert ' src="/ui' not in answer.text
        assert (await http.get("/before/oncepool/ui/static/pages.css")).status_code == 200
        assert 'aria-current="page">Limits' in (await http.get("/before/oncepool/ui/limits")).text

    bench.run(scenario)


def test_a_request_shows_all_that_is_known_and_hides_what_is_secret() -> None:
    bench = made(gateway_trace_url="https://traces.example/{trace_id}/view")
    bench.pages_journal.rows[1] |= {"superseded_by": "newer", "took_over": None}

    async def scenario(http: httpx.AsyncClient) -> None:
        page = (await http.get("/ui/requests/r1")).text
        for text in (
            "ValueError",
            "took too long",
            "<summary>Traceback</summary>",
            "line 7, in pay",
            "by gateway:ops: again",
            "requests / 0 / 17",
            "2 copies were answered",
            "older",
            f"https://traces.example/{TRACE}/view",
            "&#34;amount&#34;: 5",
            "hidden: card",
        ):
            assert text in page, text
        assert "4111" not in page
        assert "secret" not in page
        other = (await http.get(f"/ui/requests/{in_path(NASTY)}")).text
        assert "newer" in other
        # What runs for the first time is known to its instance alone.
        at_work = await http.get(
            f"/ui/requests/at%20work%20{NASTY}".replace("/script", "%2Fscript")
        )
        assert "worker 7 of one" in at_work.text
        bench.say("quick", State.DONE)
        assert "done" in (await http.get("/ui/requests/quick")).text

    bench.run(scenario)


def test_a_request_leads_to_who_asked_for_it_and_to_what_it_asked_for() -> None:
    bench = keyed()
    first, second = bench.pages_journal.rows
    asked = [{"id": "f/1", "type": "a.f", "state": "waiting", "code": "follow_up"}]
    first["follow_ups"] = FollowUps({"id": "order", "type": "a.o", "state": "done"}, asked, True)
    first |= {"partition": -1, "asked_by": "order"}
    second |= {
        "partition": -1,
        "topic": "",  # as that of the request of a schedule which asked for it
        "asked_by": "o2",
        "follow_ups": FollowUps({"id": "o2", "state": None}, []),
    }

    async def scenario(http: httpx.AsyncClient) -> None:
        await log_in(http, SOME)
        page = (await http.get("/ui/requests/r1")).text
        assert bench.pages_journal.asked[-1] == ("request", "r1", ["a.*"])
        for text in (
            '/ui/requests/f%2F1">f/1</a>',
            '/ui/requests/order">order</a>',
            "and more",
            "none: another request asked for it",
            "asked for by another request",
        ):
            assert text in page, text
        page = (await http.get(f"/ui/requests/{in_path(NASTY)}")).text
        for text in ("o2 <span", "has forgotten it", "none: another request asked"):
            assert text in page, text
        second.update({"asked_by": None, "follow_ups": FollowUps(None, [])})
        page = (await http.get(f"/ui/requests/{in_path(NASTY)}")).text
        for text in ("none: a schedule asked", "due by its"):
            assert text in page, text

    bench.run(scenario)


def test_many_are_moved_after_their_number_was_asked_about() -> None:
    bench = made()

    async def scenario(http: httpx.AsyncClient) -> None:
        page = (await http.get("/ui/requests?state=dead&type=a.*")).text
        sent = fields(page) | {"action": "retry", "all": "1"}
        assert (sent["state"], sent["type"]) == ("dead", "a.*")
        asked = (await http.post("/ui/requests/ask", data=sent)).text
        assert "Run again: 2 entries (state dead, type a.*)?" in asked
        assert not bench.mover.asked
        answer = fields(asked) | {"why": "mended"}
        bench.pages_journal.ids.append("r3")
        changed = (await http.post("/ui/requests/do", data=answer)).text
        assert "There are others by now" in changed
        assert not bench.mover.asked
        # As many as before, but one is another, or has run meanwhile.
        for ids, runs in ((["r1", "r2", "r4"], {}), (["r1", "r2", "r3"], {"r2": 3})):
            bench.pages_journal.ids, bench.pages_journal.runs = ids, runs
            again = (await http.post("/ui/requests/do", data=fields(changed))).text
            assert "There are others by now" in again
            assert not bench.mover.asked
        changed = again
        done = (await http.post("/ui/requests/do", data=fields(changed) | {"why": "mended"})).text
        assert "1 moved, 2 left as they are" in done
        by = By("gateway:local", "mended")
        assert bench.mover.asked == [("retry", ["r1", "r2", "r3"], by, None)]
        assert bench.mover.runs == [{"r1": 1, "r2": 3, "r3": 1}]
        assert bench.services.forgotten == 1

        bench.pages_journal.ids = [f"r{n:05}" for n in range(MOST_CHOSEN + 1)]
        many = (await http.post("/ui/requests/ask", data=sent)).text
        assert f"{MOST_CHOSEN:,} entries" in many
        assert "There are more" in many
        await http.post("/ui/requests/do", data=fields(many))
        assert len(bench.mover.asked[-1][1]) == MOST_CHOSEN

        # Those that are ticked, the running ones too.
        ticked = {"token": token(page), "action": "cancel", "ids": ["x", "y"], "back": "/requests"}
        said = (await http.post("/ui/requests/ask", data=ticked)).text
        assert "Cancel: 2 entries?" in said
        await http.post("/ui/requests/do", data=fields_of(said))
        assert bench.mover.runs[-1] is None, "what waits is tried again by itself"
        assert bench.mover.asked[-1] == (
            "cancel",
            ["x", "y"],
            By("gateway:local", None),
            Ending(20),
        )

        one = {"token": token(page), "action": "done", "ids": "r1", "result": '{"n": 1}'}
        asked = (await http.post("/ui/requests/do", data=one)).text
        assert "r1 (dead, run 1)" in asked, "nobody confirms what he was not asked about"
        await http.post("/ui/requests/do", data=one | fields(asked))
        assert bench.mover.asked[-1][:2] == ("done", ["r1"])
        assert (bench.mover.runs[-1], bench.mover.result) == ({"r1": 1}, b'{"n":1}')
        # What was settled meanwhile, ran, and is in doubt again is another question.
        bench.pages_journal.runs = {"r1": 3}
        count = len(bench.mover.asked)
        later = (await http.post("/ui/requests/do", data=one | fields(asked))).text
        assert "or they have run meanwhile" in later
        assert "r1 (dead, run 3)" in later
        assert len(bench.mover.asked) == count

    bench.run(scenario)


def test_messages_that_were_moved_lead_to_their_own_pages() -> None:
    bench = made()
    bench.pages_journal.refs = [DeadLetterRef("message", "3"), DeadLetterRef("message", "4")]
    bench.operator.answer = OperatorAnswer(
        {"id": "3", "from_state": DEAD_LETTER, "state": "dropped"}
    )
    letter, request = ('href="/ui/dead-letters/3"', 'href="/ui/requests/3"')

    async def scenario(http: httpx.AsyncClient) -> None:
        page = (await http.get("/ui/dead-letters/3")).text

        async def moved(action: str) -> str:
            asked = {"token": token(page), "action": action, "all": "1", "reason": "malformed"}
            asking = (await http.post("/ui/dead-letters/ask", data=asked)).text
            return (await http.post("/ui/dead-letters/do", data=fields(asking))).text

        dropped = await moved("drop")  # nothing of it is left to be looked at
        assert "<li>3: dead_letter" in dropped
        assert request not in dropped
        bench.operator.answer = OperatorAnswer(refusal=Refusal("3", DEAD_LETTER, "is no request"))
        refused = await moved("retry")
        assert (letter in refused, request in refused) == (True, False)
        bench.operator.breaks, bench.operator.breaks_at = JournalUnreachable("away"), 0
        unsure = await moved("drop")
        assert (letter in unsure, request in unsure) == (True, False)
        bench.operator.answer = OperatorAnswer({"id": "3", "from_state": "x", "state": "waiting"})
        assert request in await moved("retry")  # the request that was made of it

    bench.run(scenario)


def test_a_move_that_breaks_off_says_what_it_moved() -> None:
    bench = made()
    bench.pages_journal.refs = [DeadLetterRef("message", str(n)) for n in range(3)]

    async def scenario(http: httpx.AsyncClient) -> None:
        page = (await http.get("/ui/requests")).text
        bench.mover.breaks = JournalUnreachable("the database went away")
        sent = {"token": token(page), "action": "retry", "ids": ["r1", "x", "y"]}
        asked = (await http.post("/ui/requests/ask", data=sent)).text
        half = await http.post("/ui/requests/do", data=fields_of(asked))
        assert (half.status_code, half.headers["Retry-After"]) == (503, "5")
        for text in ("1 moved", "went away", "1 may have been moved or not", "1 were not tried"):
            assert text in half.text, text

        bench.operator.breaks_at, bench.operator.breaks = 1, bench.mover.breaks
        every = {"token": token(page), "action": "drop", "all": "1", "reason": "malformed"}
        asked = (await http.post("/ui/dead-letters/ask", data=every)).text
        half = await http.post("/ui/dead-letters/do", data=fields(asked))
        assert half.status_code == 503
        for text in ("1 moved", "went away", "1 may have been moved or not", "1 were not tried"):
            assert text in half.text, text

    bench.run(scenario)


@pytest.mark.parametrize(
    "changes",
    [{"ids": ""}, {"action": "burn", "ids": "r"}, {"all": "1"}, {"all": "1", "type": "a"},
     {"all": "1", "state": "done"}, {"all": "1", "state": "nonsense"},
     {"all": "1", "state": "dead", "since": "yesterday"}, {"ids": "r", "why": "x" * 1001},
     {"ids": "r\x01"}, {"ids": "r\0"}],
)  # fmt: skip
def test_what_makes_no_sense_moves_nothing(changes: dict[str, str]) -> None:
    bench = made()

    async def scenario(http: httpx.AsyncClient) -> None:
        page = (await http.get("/ui/requests")).text
        sent = {"token": token(page), "action": "retry"} | changes
        answer = await http.post("/ui/requests/do", data={k: v for k, v in sent.items() if v})
        assert answer.status_code in (400, 409)
        assert "<html" in answer.text

    bench.run(scenario)
    assert not bench.mover.asked


@pytest.mark.parametrize(
    "query", ["state=nonsense", "since=yesterday", "before=nonsense", "text=%00", "id=" + "x" * 201]
)
def test_a_filter_that_means_nothing_is_told(query: str) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        answer = await http.get(f"/ui/requests?{query}")
        assert answer.status_code == 400
        assert "<html" in answer.text

    made().run(scenario)


def test_a_search_says_how_far_it_got() -> None:
    bench = made()

    async def scenario(http: httpx.AsyncClient) -> None:
        page = (await http.get("/ui/requests?code=timeout")).text
        assert "at what was made since" in page
        assert "/ui/requests?code=timeout&amp;deep=1" in page
        assert "data-every" in page
        deep = (await http.get("/ui/requests?code=timeout&deep=1")).text
        assert "look further" not in deep
        assert "data-every" not in deep
        assert bench.pages_journal.asked[-1][2] is True
        bench.pages_journal.slow = True
        slow = (await http.get("/ui/requests?code=timeout")).text
        assert "could not answer this" in slow
        assert "deep=1" in slow

    bench.run(scenario)


def test_dead_letters_are_mended_and_dropped() -> None:
    bench = made()

    async def scenario(http: httpx.AsyncClient) -> None:
        page = (await http.get("/ui/dead-letters/3")).text
        assert "ff 00" in page
        sent = fields(page) | {"action": "retry", "new_id": "n1"}
        asked = (await http.post("/ui/dead-letters/ask", data=sent)).text
        answer = fields(asked) | {"why": "id was missing"}
        done = await http.post("/ui/dead-letters/do", data=answer)
        assert "1 moved" in done.text
        assert bench.operator.asked[-1][0] == "retry_dead"
        assert bench.operator.asked[-1][2:] == (By("gateway:local", "id was missing"), "n1", None)
        two = sent | {"ids": ["message:3", "request:r1"]}
        asked = (await http.post("/ui/dead-letters/ask", data=two)).text
        assert (await http.post("/ui/dead-letters/do", data=fields_of(asked))).status_code == 400
        none = sent | {"ids": "message:9", "new_id": ""}
        asked = (await http.post("/ui/dead-letters/ask", data=none)).text
        assert (await http.post("/ui/dead-letters/do", data=fields_of(asked))).status_code == 404
        every = {"token": token(page), "action": "drop", "all": "1", "reason": "malformed"}
        asked = (await http.post("/ui/dead-letters/ask", data=every)).text
        moves = len(bench.operator.asked)
        for others in (DeadLetterRef("message", "4"), DeadLetterRef("request", "r1")):
            bench.pages_journal.refs = [others]
            changed = (await http.post("/ui/dead-letters/do", data=fields(asked))).text
            assert "There are others by now" in changed
        bench.pages_journal.runs = {"r1": 3}  # it ran meanwhile, and is dead again
        again = (await http.post("/ui/dead-letters/do", data=fields(changed))).text
        assert "There are others by now" in again
        assert len(bench.operator.asked) == moves
        bench.pages_journal.refs = [DeadLetterRef("message", "3")]
        assert (await http.post("/ui/dead-letters/do", data=fields(asked))).status_code == 200
        assert bench.operator.asked[-1][0] == "drop_dead"
        assert (await http.get("/ui/dead-letters/x")).status_code == 400

    bench.run(scenario)


def test_limits_are_set_and_types_paused() -> None:
    bench = made()

    async def scenario(http: httpx.AsyncClient) -> None:
        page = (await http.get("/ui/limits")).text
        sent = {"token": token(page), "type": "a.b", "why": "too much"}
        forms: list[dict[str, str]] = [
            {"action": "set", "total": "7"}, {"action": "pause"}, {"action": "resume"},
            {"action": "all", "workers": "3"},
        ]  # fmt: skip
        for form in forms:
            assert (await http.post("/ui/limits", data=sent | form)).status_code == 200
        for form in ({"action": "set", "total": "0"}, {"action": "set", "total": "x"},
                     {"action": "x"}, {"action": "pause", "type": ""}):  # fmt: skip
            assert (await http.post("/ui/limits", data=sent | form)).status_code == 400

    bench.run(scenario)
    assert [changes for changes, _ in bench.board.changes] == [
        {Setting("total", "a.b"): 7},
        {Setting("paused", "a.b"): 1},
        {Setting("paused", "a.b"): None},
        {Setting("workers"): 3},
    ]
    assert {by for _, by in bench.board.changes} == {By("gateway:local", "too much")}


def test_schedules_are_paused_and_resumed() -> None:
    bench = keyed()

    async def scenario(http: httpx.AsyncClient) -> None:
        await log_in(http)
        page = (await http.get("/ui/schedules")).text
        assert "nightly@1" in page
        assert NASTY not in page
        sent = {"token": token(page), "action": "pause", "name": "nightly", "why": "holidays"}
        assert "nightly: paused" in (await http.post("/ui/schedules", data=sent)).text
        again = sent | {"action": "resume", "name": "weekly"}
        assert "weekly: as it was" in (await http.post("/ui/schedules", data=again)).text
        for wrong in ({"action": "drop"}, {"name": ""}):
            assert (await http.post("/ui/schedules", data=sent | wrong)).status_code == 400
        assert (await http.post("/ui/schedules", data=sent | {"name": "x"})).status_code == 404
        http.cookies.clear()
        await log_in(http, SOME)
        other = {"token": token((await http.get("/ui/schedules")).text), "name": "weekly"}
        assert (await http.post("/ui/schedules", data=sent | other)).status_code == 404

    bench.run(scenario)
    by = By("gateway:ops", "holidays")
    assert bench.schedules.asked == [("pause", "nightly", by), ("resume", "weekly", by)]


def test_a_gateway_without_a_journal_or_without_pages_says_so() -> None:
    bare = made()
    assert bare.parts.pages is not None
    bare.parts.pages.journal = bare.parts.pages.limits = None

    async def scenario(http: httpx.AsyncClient) -> None:
        assert (await http.get("/ui/")).status_code == 200
        for path in ("/requests", "/requests/r1", "/dead-letters", "/limits", "/oddities"):
            answer = await http.get(f"/ui{path}")
            assert (answer.status_code, "set " in answer.text) == (501, True)

    bare.run(scenario)
    off = made()
    off.parts.pages = None

    async def nothing(http: httpx.AsyncClient) -> None:
        assert (await http.get("/ui/")).status_code == 404

    off.run(nothing)


def test_a_choice_that_takes_too_long_is_told_and_moves_nothing() -> None:
    bench = made()

    async def scenario(http: httpx.AsyncClient) -> None:
        page = (await http.get("/ui/requests?state=dead")).text
        bench.pages_journal.slow = True
        sent = fields(page) | {"action": "retry", "all": "1"}
        answer = await http.post("/ui/requests/ask", data=sent)
        assert (answer.status_code, "could not answer" in answer.text) == (503, True)

    bench.run(scenario)
    assert not bench.mover.asked
