"""The shop's side of the card service: one call, and the question whether it happened."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import quote, urlsplit

from examples.shop.models import Charge, Charged


class Declined(Exception):
    """The card service refused the charge for good."""


class CardServiceAway(Exception):
    """The card service could not be reached: nothing was sent to it."""


class Cards:
    """The card service at an address, for one worker. Each call has a connection of its own."""

    def __init__(self, url: str, timeout: float = 10.0) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._timeout = timeout

    def charge(self, key: str, charge: Charge) -> Charged:
        """Charge once for this key, however often it is called.

        Raises Declined, CardServiceAway, and OSError or HTTPException where the call was sent and
        what became of it is not known.
        """
        status, answer = self._call("POST", "/charges", key, charge.model_dump())
        if status in {http.client.OK, http.client.CREATED}:
            return Charged.model_validate(answer)
        if status == http.client.PAYMENT_REQUIRED:
            raise Declined(answer["reason"])
        raise http.client.HTTPException(f"the card service answered {status}: {answer}")

    def find(self, key: str) -> Charged | None:
        """The charge under this key, None where there is none; raises CardServiceAway."""
        try:
            status, answer = self._call("GET", f"/charges/{quote(key, safe='')}")
        except (OSError, http.client.HTTPException) as error:
            raise CardServiceAway(str(error)) from error
        if status == http.client.NOT_FOUND:
            return None
        if status != http.client.OK:
            raise CardServiceAway(f"the card service answered {status}: {answer}")
        return Charged.model_validate(answer)

    def _call(
        self, method: str, path: str, key: str | None = None, body: Any = None
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        try:
            try:
                connection.connect()
            except OSError as error:
                raise CardServiceAway(f"no connection to the card service: {error}") from error
            headers = {"Content-Type": "application/json"}
            if key is not None:
                headers["Idempotency-Key"] = json.dumps(key)  # a quoted string, as the draft says
            connection.request(method, path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()
