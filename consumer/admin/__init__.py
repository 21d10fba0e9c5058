"""What commands ask of Kafka, the journal and Redis."""
