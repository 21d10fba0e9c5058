from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.private_valkey import PrivateValkey


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateValkey]:
    """A server of the file's own."""
    server = PrivateValkey(tmp_path_factory.mktemp("valkey"))
    yield server
    server.stop()
