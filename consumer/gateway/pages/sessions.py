"""Logins to the pages: a signed cookie that says who it is and until when.

Nothing is kept on this side, so any gateway with the same secret takes it. It ends with its time,
and as soon as the API key that it was made with is taken away or replaced.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from consumer.gateway.access import LOCAL, Access, Caller

COOKIE: Final = "oncepool_session"


class Sessions:
    """Makes the cookies, and knows people by them."""

    def __init__(
        self,
        access: Access,
        secret: str,
        seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Without a `secret` one is made, and the cookies are good for this process alone."""
        self._access = access
        self._secret = (secret or secrets.token_urlsafe(32)).encode()
        self.seconds = seconds
        self._clock = clock

    @property
    def wanted(self) -> bool:
        """Whether anybody has to log in: without API keys all of this machine may do all."""
        return not self._access.open

    def login(self, token: str) -> tuple[Caller, str]:
        """Who has this API key, and his cookie. Raises HttpProblem, 401 or 429."""
        caller = self._access.holder(token)
        found = self._access.named(caller.name)
        ends = round(self._clock() + self.seconds)
        known = b"" if found is None else found[1]
        return caller, f"{ends}.{self._signed(known, ends)}.{caller.name}"

    def caller(self, cookie: str | None) -> Caller | None:
        """Who has this cookie; None where nobody is known by it. Raises HttpProblem, 429."""
        if not self.wanted:
            return self._access.caller([])
        caller = self.known(cookie)
        if caller is not None:
            self._access.count(caller.name)
        return caller

    def known(self, cookie: str | None) -> Caller | None:
        """The same, and it counts as no call."""
        if not self.wanted:
            return self._access.anybody
        ends, _, rest = (cookie or "").partition(".")
        given, _, name = rest.partition(".")
        found = self._access.named(name)
        if found is None or not (ends.isascii() and ends.isdigit()) or len(ends) > 15:
            return None
        caller, known = found
        if not hmac.compare_digest(self._signed(known, int(ends)).encode(), given.encode()):
            return None
        return None if int(ends) <= self._clock() else caller

    def form_token(self, cookie: str | None) -> str:
        """What each form of a page has to bring along: another site cannot know it."""
        return self._mac("form", cookie if self.wanted and cookie else LOCAL)

    def is_form_token(self, cookie: str | None, given: str) -> bool:
        """Whether a form came from a page of ours."""
        return hmac.compare_digest(self.form_token(cookie).encode(), given.encode())

    def _signed(self, known: bytes, ends: int) -> str:
        return self._mac("session", known.decode(), str(ends))

    def _mac(self, *parts: str) -> str:
        return hmac.new(self._secret, "\0".join(parts).encode(), sha256).hexdigest()
