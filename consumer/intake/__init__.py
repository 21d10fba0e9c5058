"""From Kafka to the pool: the loop, commit-first protocol, assignment and flow control."""
