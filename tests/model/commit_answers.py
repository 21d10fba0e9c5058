"""What an OffsetCommit may be answered with, by librdkafka's names."""

from __future__ import annotations

from consumer.intake.commit_errors import NOTHING_SAID

TRANSIENT = (
    *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"),
    *("REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    *("UNKNOWN_TOPIC_OR_PART", "_WAIT_COORD", "_TRANSPORT", "_TIMED_OUT", "_TIMED_OUT_QUEUE"),
    *("REBALANCE_IN_PROGRESS", "SOMETHING_NEW"),
    *("GROUP_ID_NOT_FOUND", "_FATAL", NOTHING_SAID),
)
"""Whatever the group thinks of it, and the member goes on: one that the table does not have and an
answer that says nothing are among them."""
ENDING = (
    *("FENCED_INSTANCE_ID", "GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"),
    *("CLUSTER_AUTHORIZATION_FAILED", "INVALID_GROUP_ID", "UNSUPPORTED_VERSION"),
    *("OFFSET_METADATA_TOO_LARGE", "INVALID_COMMIT_OFFSET_SIZE"),
)
"""After these the service ends, and others take over."""
CLASSIC = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
"""What the group itself answers to one that it has put out, and to one of another generation."""
EPOCHS = ("FENCED_MEMBER_EPOCH", "STALE_MEMBER_EPOCH")
"""The same with KIP-848."""
