from __future__ import annotations

from pathlib import Path

import pytest

from consumer.config.settings import Settings, variable


@pytest.fixture
def unconfigured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, and no setting in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in Settings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)
