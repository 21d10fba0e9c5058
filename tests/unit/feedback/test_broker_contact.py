"""When a client is asked whether it still knows brokers, and when it is given up."""

from __future__ import annotations

from feedback.broker_contact import PAUSE, TIMEOUTS, BrokerContact


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def ask(contact: BrokerContact, clock: Clock, *, answered: bool) -> tuple[float | None, bool]:
    """After the pause: for how long it was asked, and whether it is lost."""
    clock.now += PAUSE
    timeout = contact.due()
    return timeout, contact.asked(answered=answered)


def test_nobody_is_asked_before_all_brokers_were_down() -> None:
    contact = BrokerContact(Clock())
    assert contact.due() is None
    assert not contact.doubtful


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
