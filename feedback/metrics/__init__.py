"""Metrics for Prometheus: the closed list of their names, and how their values become text."""
