"""For tests of handlers: a kit without Kafka, PostgreSQL or Redis, and a cursor without a database.

from processing.testing import FakeCursor, Kit, run, run_batch
"""

from processing.testing.fake_cursor import FakeCursor
from processing.testing.kit import Kit, KitError, RunOutcome, run, run_batch

__all__ = ["FakeCursor", "Kit", "KitError", "RunOutcome", "run", "run_batch"]
