"""When a service counts as up: it answers as its clients need it, not only accepts connections."""

from __future__ import annotations

import socket

import psycopg
from confluent_kafka.admin import AdminClient
from psycopg import sql

from stack import places


def broker_is_in(host: str, port: int, node: int) -> bool:
    """True where the broker at this address knows itself to be part of its cluster."""
    # Without this look first, a client that finds nobody would complain on standard error.
    if not places.answers(host, port):
        return False
    client = AdminClient({"bootstrap.servers": f"{host}:{port}", "log_level": 0})
    return node in client.list_topics(timeout=2.0).brokers


def database_is_there(server: str, database: str) -> bool:
    """True where PostgreSQL takes statements; creates the database where it is missing.

    `server` is the URL of a database that always exists. Raises psycopg.Error while it starts.
    """
    with psycopg.connect(server, autocommit=True, connect_timeout=2) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [database])
        if known.fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
    return True


def redis_answers(host: str, port: int) -> bool:
    """True where PING is answered. Raises OSError while nobody listens."""
    with socket.create_connection((host, port), 1.0) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")
