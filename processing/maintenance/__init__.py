"""The maintenance process: waiting queue, leases, counters, health, what is never urgent."""
