"""Creates the shop's tables:  python -m examples.shop.tables [DATABASE_URL]."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psycopg

_SCHEMA = Path(__file__).with_name("schema.sql")
_LOCK = 0x5_40_9  # of our own choosing; makes workers that start together take turns


def create_tables(database_url: str) -> None:
    """Create what is missing. Any number of processes may do so at once."""
    with psycopg.connect(database_url, connect_timeout=5) as connection:
        # IF NOT EXISTS alone is not enough: two that create the same table at once collide.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        connection.execute(_SCHEMA.read_bytes())


def main() -> None:
    """Take the address from the command line or the environment."""
    address = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ONCEPOOL_DATABASE_URL")
    if not address:
        sys.exit("give the database's address, or set ONCEPOOL_DATABASE_URL")
    create_tables(address)
    print("the shop's tables are there")


if __name__ == "__main__":
    main()
