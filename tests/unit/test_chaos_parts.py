"""The chaos suite's own parts: its schedule, and that its checks see what is wrong."""

from __future__ import annotations

import struct
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.real.books import balance
from tests.chaos.real.campaign import MATRIX, options_of, parser_of, plans
from tests.chaos.real.checks import CHECKS, kept_order
from tests.chaos.real.facts import Effect, Entry, Facts, Status
from tests.chaos.real.faults import Struck
from tests.chaos.real.gateway_facts import GatewayFacts
from tests.chaos.real.order_facts import OrderFacts, first_spots
from tests.chaos.real.orders import Obedience, Orders
from tests.chaos.real.process_limit import ProcessLimit, can_limit_processes
from tests.chaos.real.producer import Copy
from tests.chaos.real.right_facts import MAIN, OTHER, right
from tests.chaos.real.schedule import schedule
from tests.chaos.real.traffic import Item, Kind, Traffic
from tests.support.committed_offsets import Landed
from tests.support.pooler import Conversation, Packets
from tests.support.published import command_of

# Schedule and traffic


def test_the_same_seed_is_the_same_schedule_with_every_kind_first() -> None:
    weights = {"a": 1.0, "b": 0.1, "c": 2.0, "never": 0.0}
    made = schedule(7, "service", weights, 1.0)
    assert made == schedule(7, "service", weights, 1.0)
    assert made != schedule(8, "service", weights, 1.0)
    assert sorted(plan.kind for plan in made[:3]) == ["a", "b", "c"]
    assert {plan.kind for plan in made} == {"a", "b", "c"}


def test_episodes_see_to_it_together_that_every_kind_comes() -> None:
    weights = dict.fromkeys("abcdefg", 1.0)
    shares = [schedule(7, "service", weights, 1.0, (n, 3)) for n in range(3)]
    firsts = [
        sorted(plan.kind for plan in share[:most])
        for share, most in zip(shares, (3, 2, 2), strict=True)
    ]
    assert firsts == [["a", "d", "g"], ["b", "e"], ["c", "f"]]


def test_a_run_that_is_to_send_so_many_lasts_as_long_as_they_take() -> None:
    options = options_of(["--requests", "900000", "--rate", "300", "--seed", "7", "--keep", "x"])
    made = plans(options)
    assert {(plan.protocol, plan.ordering) for plan in made} == set(MATRIX)
    assert sum(plan.seconds for plan in made) == pytest.approx(3000)
    assert [plan.share for plan in made] == [(n, 9) for n in range(9)]
    command = command_of("scripts/chaos", parser_of(), options)
    assert command == "scripts/chaos --requests 900000 --seed 7 --rate 300"


def test_the_same_seed_is_the_same_traffic() -> None:
    def items(seed: int) -> list[tuple[str, str, bytes | None]]:
        traffic = Traffic(seed, "x")
        return [(item.id, item.type, item.key) for item in (traffic.next() for _ in range(500))]

    assert items(1) == items(1)
    assert items(1) != items(2)
    assert {type_ for _, type_, _ in items(1)} >= {"", "move", "charge", "pure", "recount"}


def test_an_order_is_taken_once_and_withdrawn_where_nobody_takes_it(tmp_path: Path) -> None:
    orders, hands = Orders(tmp_path), Obedience(str(tmp_path))
    order = orders.give("in_handler", "hold 1.5")
    assert hands.take("before_commit", "x") is None
    assert hands.take("in_handler", "id-1") == "hold 1.5"
    assert hands.take("in_handler", "id-2") is None
    found = order.evidence(5)
    assert found is not None
    assert found["about"] == "id-1"
    assert orders.give("in_handler", "kill").evidence(0) is None
    assert hands.take("in_handler", "id-3") is None


# Checks: each sees what is wrong in facts that are right but for one thing


def second_effect(facts: Facts) -> None:
    facts.effects.append(Effect(3, "a", "k", 1, "move", 0, 1, MAIN))


def second_charge(facts: Facts) -> None:
    facts.charges["a"] += 2


def no_row(facts: Facts) -> None:
    del facts.rows["b"]


def failed_for_good(facts: Facts) -> None:
    facts.rows["b"] = facts.rows["b"]._replace(state="failed")


def no_effect(facts: Facts) -> None:
    del facts.effects[1]


def token_of_another(facts: Facts) -> None:
    facts.commits = [Landed(0, 4, "1;other-1;")]


def before_its_commit(facts: Facts) -> None:
    facts.entries[0] = facts.entries[0]._replace(clock=4.9)


def not_read(facts: Facts) -> None:
    facts.unread.append("partition 0: finished up to 3, committed up to 4, of 4")


def back(facts: Facts) -> None:
    facts.commits.append(Landed(0, 1, "1;me-2;"))


def disorder(facts: Facts) -> None:
    facts.effects.reverse()


def status_that_lies(facts: Facts) -> None:
    facts.statuses["b"] = Status("rejected", "no_funds", 1)


def waiting_without_a_row(facts: Facts) -> None:
    facts.statuses["b"] = Status("waiting", "delayed", 1)
    del facts.rows["b"]


def other_payload(facts: Facts) -> None:
    facts.effects.append(Effect(3, "c", "k", -1, "move", 0, 9, MAIN))


def second_letter(facts: Facts) -> None:
    facts.letters.append(((0, 3), "malformed"))


def letter_of_a_request(facts: Facts) -> None:
    facts.letters.append(((0, 1), "malformed"))


def entered_after_a_death(facts: Facts) -> None:
    facts.ledger.items["a"] = Item("a", Kind.REQUEST, "once", b"k", b"{}", [], 1)
    facts.entries.append(Entry("a", 0, 1, OTHER, 12))


def orphan(facts: Facts) -> None:
    facts.left.append("process 1")


def refused_for_one_connection(facts: Facts) -> None:
    facts.struck.append(Struck("database_backend_ended_idle", 100.0, 100.1, "1 of them"))
    facts.ledger.refusals.append((100.5, "a", "failed/database_unavailable"))


def orders_of(facts: Facts) -> OrderFacts:
    assert facts.orders is not None
    return facts.orders


def order_lost(facts: Facts) -> None:
    orders_of(facts).committed.append("o4")


def order_paid_twice(facts: Facts) -> None:
    facts.effects.append(facts.effects[-1]._replace(seq=9))


def order_rolled_back(facts: Facts) -> None:
    orders_of(facts).committed.remove("o1")


def order_answered_twice(facts: Facts) -> None:
    orders_of(facts).answers *= 2


def order_not_answered(facts: Facts) -> None:
    orders_of(facts).answers.pop()


def order_failed(facts: Facts) -> None:
    orders_of(facts).answers[0] = ("o1", "failed/timeout")


def order_open(facts: Facts) -> None:
    orders_of(facts).open.append("o1: unanswered")


def order_sent_out_of_turn(facts: Facts) -> None:
    orders_of(facts).spots["o1"] = (0, 6)


def gateway_of(facts: Facts) -> GatewayFacts:
    assert facts.gateway is not None
    return facts.gateway


def told_otherwise(facts: Facts) -> None:
    gateway_of(facts).last["b"] = "rejected"


def told_that_it_is_unknown(facts: Facts) -> None:
    gateway_of(facts).last["b"] = "unknown"


def told_nothing(facts: Facts) -> None:
    gateway_of(facts).last.clear()


def told_done_without_a_row(facts: Facts) -> None:
    del facts.rows["b"]


def told_nonsense(facts: Facts) -> None:
    gateway_of(facts).wrong.append("b: POST 500")


WRONG: list[tuple[str, Callable[[Facts], None]]] = [
    ("nothing twice", second_effect),
    ("nothing twice", second_charge),
    ("nothing lost", no_row),
    ("nothing lost", failed_for_good),
    ("done is an effect", no_effect),
    ("done is an effect", failed_for_good),
    ("confirmed first", token_of_another),
    ("confirmed first", before_its_commit),
    ("offsets never go back", back),
    ("everything was read to its end", not_read),
    ("order of a lane", disorder),
    ("statuses agree with the journal", status_that_lies),
    ("statuses agree with the journal", waiting_without_a_row),
    ("bad input never runs", other_payload),
    ("bad input never runs", second_letter),
    ("bad input never runs", letter_of_a_request),
    ("what may have run is not entered again", entered_after_a_death),
    ("nothing left behind", orphan),
    ("one lost connection refuses nobody", refused_for_one_connection),
    *(
        ("committed orders run once, others never", spoil)
        for spoil in (order_lost, order_paid_twice, order_rolled_back)
    ),
    *(
        ("orders are answered once", spoil)
        for spoil in (
            order_answered_twice,
            order_not_answered,
            order_rolled_back,
            order_failed,
            order_open,
        )
    ),
    ("orders of a key are sent in turn", order_sent_out_of_turn),
    *(
        ("the gateway's answers agree with the journal", spoil)
        for spoil in (
            told_otherwise,
            told_that_it_is_unknown,
            told_nothing,
            told_done_without_a_row,
            told_nonsense,
        )
    ),
]


def message_of(name: str, partition: int, offset: int) -> Any:
    headers = [("ce_type", b"pay"), ("ce_id", name.encode())]
    return SimpleNamespace(
        headers=lambda: headers, partition=lambda: partition, offset=lambda: offset
    )


def test_the_first_copy_of_an_order_counts_where_its_key_has_not_moved() -> None:
    copies = [("o1", 0, 4), ("o2", 0, 5), ("o1", 0, 6), ("o3", 0, 7), ("o3", 1, 0), ("x", 0, 8)]
    messages = [message_of(*copy) for copy in reversed(copies)]
    assert first_spots(messages, {"o1", "o2", "o3"}) == {"o1": (0, 4), "o2": (0, 5)}


def test_every_second_episode_with_an_outbox_has_result_records() -> None:
    made = plans(options_of(["--episodes", "2", "--orders", "5", "--keep", "x"]))
    assert {bool(plan.results) for plan in made} == {True, False}
    assert not any(plan.results for plan in plans(options_of(["--episodes", "2", "--keep", "x"])))


def test_facts_that_are_right_pass_every_check() -> None:
    facts = right()
    assert [name for name, check in CHECKS.items() if check(facts)] == []
    books = balance(facts)
    assert (books.sent, books.executed, books.letters) == (3, 2, 1)


@pytest.mark.parametrize("check, spoil", WRONG)
def test_each_check_sees_what_is_wrong(check: str, spoil: Callable[[Facts], None]) -> None:
    facts = right()
    spoil(facts)
    assert CHECKS[check](facts) != []


def overtaken(facts: Facts) -> None:
    """The second one ran elsewhere, before the first."""
    facts.effects = [facts.effects[1]._replace(main=OTHER), facts.effects[0]]


def test_only_what_was_in_flight_at_a_kill_may_be_out_of_order_across_instances() -> None:
    facts = right()
    overtaken(facts)
    assert kept_order(facts) == ([], 1)  # the other one was killed
    facts.how["other"] = "stopped"
    assert (len(kept_order(facts)[0]), kept_order(facts)[1]) == (1, 0)
    facts.how["other"] = "killed"
    facts.ledger.copies.append(Copy("c", Kind.REQUEST, 0, 0, 3, 0.0))
    facts.effects.append(Effect(5, "c", "k", 3, "move", 0, 3, OTHER))
    facts.entries.append(Entry("c", 0, 3, OTHER, 12))
    assert len(kept_order(facts)[0]) == 1  # it lived on


# Processes


@pytest.mark.skipif(not can_limit_processes(), reason="needs the right to make a control group")
def test_a_process_that_may_start_no_more_can_start_no_more_until_it_is_let_go() -> None:
    code = "import subprocess; input(); subprocess.run(['true']); print('started', flush=True)\n"
    limit = ProcessLimit.made(f"oncepool-unit-{uuid.uuid4().hex[:8]}")
    assert limit is not None
    try:
        for bound in (True, False):
            with subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True,
            ) as child:  # fmt: skip
                limit.bind([child.pid])
                if not bound:
                    limit.close()
                said, _ = child.communicate("\n", timeout=60)
            assert said == ("" if bound else "started\n")
    finally:
        limit.close()


# Pooler


def packet(letter: bytes, body: bytes = b"") -> bytes:
    return letter + struct.pack(">i", 4 + len(body)) + body


@pytest.mark.parametrize(
    "asked, answered, over",
    [
        ([packet(b"Q", b"SELECT 1\0")], [], False),
        ([packet(b"Q", b"SELECT 1\0")], [packet(b"D"), packet(b"Z", b"I")], True),
        ([packet(b"Q", b"BEGIN\0")], [packet(b"Z", b"T")], False),
        ([packet(b"Q", b"wrong\0")], [packet(b"E"), packet(b"Z", b"E")], False),
        ([packet(b"P"), packet(b"B"), packet(b"E")], [packet(b"1")], False),
        ([packet(b"P"), packet(b"B"), packet(b"E"), packet(b"S")], [packet(b"Z", b"I")], True),
        ([packet(b"S"), packet(b"S")], [packet(b"Z", b"I")], False),
        ([packet(b"S"), packet(b"P")], [packet(b"Z", b"I")], False),
        ([packet(b"Q", b"COPY\0"), packet(b"d", b"x"), packet(b"c")], [packet(b"Z", b"I")], True),
    ],
)
def test_a_transaction_is_over_once_all_is_answered_and_none_is_open(
    asked: list[bytes], answered: list[bytes], over: bool
) -> None:
    talk, packets = Conversation(), Packets()
    for message in asked:
        talk.asked(message)
    data = b"".join(answered)
    for at in range(len(data)):
        for message in packets.feed(data[at : at + 1]):
            talk.answered(message)
    assert talk.over is over
