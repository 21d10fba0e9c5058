"""Takes what stands in an outbox to Kafka, and learns what became of it.

As `oncepool relay`, or as threads of a service, which needs psycopg.
"""

from feedback.outbox.relay.answers import AnswerPolicy, Ended
from feedback.outbox.relay.relay import Relay, Route

__all__ = ["AnswerPolicy", "Ended", "Relay", "Route"]
