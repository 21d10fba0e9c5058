"""What an error of Redis says: it did not answer, or refused; and what to do about it."""

from __future__ import annotations

from typing import NamedTuple, Self

import redis

from consumer.config.masking import mask_url
from feedback.errors import StoreUnavailable

_REFUSALS = (
    redis.ResponseError,
    redis.AuthenticationError,
    redis.BusyLoadingError,
    redis.exceptions.AuthorizationError,
)
"""Those that it said itself; the last ones are errors of the connection by their class."""
_ADVICE: tuple[tuple[type[Exception], str], ...] = (
    (redis.OutOfMemoryError, "it is full: raise its maxmemory, or delete what nobody needs there"),
    (redis.ReadOnlyError, "it is a replica: name the primary in redis_url"),
    (redis.exceptions.NoPermissionError, "look at the rights of its user"),
    (redis.BusyLoadingError, "wait until it has read its data"),
    (redis.AuthenticationError, "correct user and password in redis_url"),
    (redis.RedisError, "see to what it names"),
)


class RedisProblem(NamedTuple):
    """As text what it did: "refused: ..." or "does not answer: ..."."""

    done: str
    said: str
    advice: str

    @classmethod
    def of(cls, error: Exception) -> Self:
        """Of an error of the client, also where a StoreUnavailable was raised from it."""
        if isinstance(error, StoreUnavailable) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        said = mask_url(str(error)).rstrip(".")
        if not isinstance(error, _REFUSALS):
            return cls("does not answer", said, "correct redis_url or start Redis")
        advice = next(text for kind, text in _ADVICE if isinstance(error, kind))
        return cls("refused", said, advice)

    def __str__(self) -> str:
        return f"{self.done}: {self.said}"
