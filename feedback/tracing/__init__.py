"""Spans of what is sent, run and written; nothing is loaded where tracing is off."""
