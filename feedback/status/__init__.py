"""Statuses for producers to poll, kept in Redis."""
