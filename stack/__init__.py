"""Real Kafka, PostgreSQL and Valkey on this machine, for the demo, tests and benchmarks.

    import stack

    services = stack.up()                      # finds what already runs, starts what does not
    services.kafka, services.database, services.redis
    services.down()

Where the services come from, in this order: addresses in the environment
(``ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS``, ``ONCEPOOL_DATABASE_URL``, ``ONCEPOOL_REDIS_URL``), else
programs that Python packages bring along; with ``ONCEPOOL_STACK=docker``, containers.
"""

from __future__ import annotations

from stack.errors import MissingPackage, NotOurs, ServiceFailed, StackError
from stack.local import ServiceStatus, Stack, find
from stack.start import Progress, up

__all__ = [
    "MissingPackage",
    "NotOurs",
    "Progress",
    "ServiceFailed",
    "ServiceStatus",
    "Stack",
    "StackError",
    "find",
    "up",
]
