"""A worker process: runs chunks of requests on one database connection."""
