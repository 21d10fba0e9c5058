"""When a client is asked whether it still knows brokers, and when it is given up."""

from __future__ import annotations

from feedback.broker_contact import PAUSE, TIMEOUTS, BrokerContact
from tests.support.clock import Clock


def ask(contact: BrokerContact, clock: Clock, *, answered: bool) -> tuple[float | None, bool]:
    """After the pause: for how long it was asked, and whether it is lost."""
    clock.now += PAUSE
    timeout = contact.due()
    return timeout, contact.asked(answered=answered)


def test_nobody_is_asked_before_all_brokers_were_down() -> None:
    contact = BrokerContact(Clock())
    assert contact.due() is None
    assert not contact.doubtful


def test_for_how_long_no_broker_was_heard() -> None:
    clock = Clock()
    contact = BrokerContact(clock)
    assert contact.away_for is None
    contact.all_down()
    clock.now += 30.0
    contact.all_down()  # it says so again and again
    assert contact.away_for == 30.0
    contact.heard_from(1)  # what came between the two
    clock.now += 2.0
    assert contact.away_for == 2.0
    contact.heard_from(2)
    assert contact.away_for is None


def test_who_never_answers_is_lost() -> None:
    clock = Clock()
    contact = BrokerContact(clock)
    contact.all_down()
    assert contact.due() is None
    asked = [ask(contact, clock, answered=False) for _ in TIMEOUTS]
    assert asked == [(TIMEOUTS[0], False), (TIMEOUTS[1], False), (TIMEOUTS[2], True)]
    assert not contact.doubtful
    assert ask(contact, clock, answered=True)[0] is None


def test_who_answers_is_asked_no_more_until_the_next_outage() -> None:
    clock = Clock()
    contact = BrokerContact(clock)
    contact.all_down()
    ask(contact, clock, answered=False)
    assert ask(contact, clock, answered=True) == (TIMEOUTS[1], False)
    clock.now += 10 * PAUSE
    assert contact.due() is None
    contact.all_down()
    assert ask(contact, clock, answered=False) == (TIMEOUTS[0], False)


def test_who_says_again_and_again_that_all_are_down_is_lost_all_the_same() -> None:
    clock = Clock()
    contact = BrokerContact(clock)
    lost = []
    for _ in TIMEOUTS:
        contact.all_down()
        lost.append(ask(contact, clock, answered=False)[1])
    assert lost == [False, False, True]


def test_who_has_heard_from_a_broker_since_the_last_outage_is_not_asked() -> None:
    clock = Clock()
    contact = BrokerContact(clock)
    contact.all_down()
    contact.heard_from(contact.outages)
    assert not contact.doubtful
    clock.now += PAUSE
    assert contact.due() is None


def test_what_came_before_an_outage_does_not_end_the_doubt() -> None:
    contact = BrokerContact(Clock())
    before = contact.outages
    contact.all_down()
    between = contact.outages
    contact.all_down()
    for since in (before, between):
        contact.heard_from(since)
        assert contact.doubtful
    contact.heard_from(contact.outages)
    contact.heard_from(before)
    assert not contact.doubtful


def test_an_answer_to_what_was_asked_before_an_outage_does_not_end_the_doubt() -> None:
    clock = Clock()
    contact = BrokerContact(clock)
    contact.all_down()
    clock.now += PAUSE
    assert contact.due() == TIMEOUTS[0]
    contact.all_down()
    assert not contact.asked(answered=True)
    assert contact.doubtful
    assert ask(contact, clock, answered=True) == (TIMEOUTS[0], False)
    assert not contact.doubtful


def test_a_sign_of_life_between_two_outages_begins_the_questions_anew() -> None:
    clock = Clock()
    contact = BrokerContact(clock)
    contact.all_down()
    between = contact.outages
    for _ in TIMEOUTS[1:]:
        ask(contact, clock, answered=False)
    contact.all_down()
    contact.heard_from(between)
    assert contact.due() is None
    assert ask(contact, clock, answered=False) == (TIMEOUTS[0], False)


def test_one_that_was_given_up_and_reports_an_outage_is_asked_from_the_beginning() -> None:
    """Of two threads one may report it while the other has just heard the last silence."""
    clock = Clock()
    contact = BrokerContact(clock)
    contact.all_down()
    for _ in TIMEOUTS:
        ask(contact, clock, answered=False)
    contact.outages += 1  # as `all_down` does that had found it doubtful before
    assert ask(contact, clock, answered=False) == (TIMEOUTS[0], False)
