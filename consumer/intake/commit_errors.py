"""What an error of a commit means: our own table, as the client's own marks say nothing here.

librdkafka's `retriable()` and `fatal()` are both False for errors of a commit. Whatever the error,
the commit may have landed, on all of its partitions or some: the committed offsets are read back
first. The table only says what becomes of those that did not land.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Verdict(Enum):
    """What to do with records whose commit did not land; a later one is graver."""

    AGAIN = 1
    """Send the same offset and token again while the partition is owned in the same assignment."""
    REJOIN = 2
    """This member is no longer one: leave them, join anew, and read them again."""
    FATAL = 3
    """It can't work: end the service."""


class Meaning(NamedTuple):
    """One row of the table."""

    verdict: Verdict
    reason: str
    loose: bool = False
    """The commit's bytes may still be on their way."""


TABLE: dict[str, Meaning] = {
    # The coordinator is moving, loading or far away.
    "COORDINATOR_LOAD_IN_PROGRESS": Meaning(Verdict.AGAIN, "the coordinator reads its log"),
    "COORDINATOR_NOT_AVAILABLE": Meaning(Verdict.AGAIN, "the group has no coordinator just now"),
    "NOT_COORDINATOR": Meaning(Verdict.AGAIN, "the coordinator has moved to another broker"),
    "REQUEST_TIMED_OUT": Meaning(Verdict.AGAIN, "the broker's own write took too long"),
    "NOT_ENOUGH_REPLICAS": Meaning(
        Verdict.AGAIN, "the offsets topic has too few replicas just now"
    ),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": Meaning(Verdict.AGAIN, "written, with too few replicas"),
    "UNKNOWN_TOPIC_OR_PART": Meaning(Verdict.AGAIN, "metadata has not spread yet"),
    "_WAIT_COORD": Meaning(Verdict.AGAIN, "no coordinator was found in time; nothing was sent"),
    "_TRANSPORT": Meaning(Verdict.AGAIN, "the connection broke before the answer", loose=True),
    "_TIMED_OUT": Meaning(Verdict.AGAIN, "no answer in time", loose=True),
    "_TIMED_OUT_QUEUE": Meaning(Verdict.AGAIN, "not sent in time"),
    # The group is moving. In a cooperative rebalance the partition is mostly still owned.
    "REBALANCE_IN_PROGRESS": Meaning(Verdict.AGAIN, "refused while the group settles"),
    "ILLEGAL_GENERATION": Meaning(
        Verdict.AGAIN, "sent just before the new generation was known here"
    ),
    "STALE_MEMBER_EPOCH": Meaning(Verdict.AGAIN, "sent just before the new epoch was known here"),
    # The group has let go of this member. Sending again could only land in the name of another
    # membership, which may not own the partition: commits are not checked for that.
    "UNKNOWN_MEMBER_ID": Meaning(Verdict.REJOIN, "the group no longer knows this member"),
    "FENCED_MEMBER_EPOCH": Meaning(Verdict.REJOIN, "the group has put this member out"),
    "GROUP_ID_NOT_FOUND": Meaning(Verdict.REJOIN, "the group is gone"),
    # The next poll says why, and whether another client takes its place or the service ends.
    "_FATAL": Meaning(Verdict.REJOIN, "the client has given up"),
    # No retry can help.
    "FENCED_INSTANCE_ID": Meaning(Verdict.FATAL, "another process uses this group.instance.id"),
    "GROUP_AUTHORIZATION_FAILED": Meaning(Verdict.FATAL, "not allowed to use the group"),
    "TOPIC_AUTHORIZATION_FAILED": Meaning(Verdict.FATAL, "not allowed to read the topic"),
    "CLUSTER_AUTHORIZATION_FAILED": Meaning(Verdict.FATAL, "not allowed to use the cluster"),
    "INVALID_GROUP_ID": Meaning(Verdict.FATAL, "the broker refuses the group's name"),
    "UNSUPPORTED_VERSION": Meaning(Verdict.FATAL, "the broker does not know this kind of commit"),
    "OFFSET_METADATA_TOO_LARGE": Meaning(
        Verdict.FATAL,
        "the token does not fit; raise the broker's offset.metadata.max.bytes to 128 or more",
    ),
    "INVALID_COMMIT_OFFSET_SIZE": Meaning(
        Verdict.FATAL, "the broker can't store offsets this size"
    ),
}

NOTHING_SAID = "_NOTHING_SAID"
"""Not the client's: an answer that names neither error nor partition; as an unknown error."""
UNKNOWN = Meaning(Verdict.AGAIN, "an error that this table does not have", loose=True)
UNKNOWN_LIMIT = 20
"""Times in a row that a commit may fail with an unknown error; then it is fatal."""


def judge(code: str) -> Meaning:
    """The row of an error, by librdkafka's name of it."""
    return TABLE.get(code, UNKNOWN)
