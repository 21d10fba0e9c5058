"""Takes what stands in an outbox to Kafka: as `oncepool relay`, or as threads of a service.

Needs psycopg.
"""

from feedback.outbox.relay.relay import Relay, Route

__all__ = ["Relay", "Route"]
