"""URLs of a database of which libpq would show the password, and those that it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from consumer.config.loader import load_settings
from consumer.errors import ConfigError


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:ge@heim@127.0.0.1:1/d",
        "postgresql://u:ge/heim@127.0.0.1:1/d",
        "postgresql://u:ge@heim/x@127.0.0.1:1/d",
        "host=h password=ge heim dbname=d",
        "password='ge heim",
        "host=h password=ge heim",
    ],
)
def test_a_database_url_of_which_libpq_would_show_the_password_is_refused(
    url: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={"ONCEPOOL_DATABASE_URL": url}, folder=tmp_path)
    assert "heim" not in str(caught.value)
    assert "***" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///d",
        "postgresql://h",
        "postgres://u@h:/d%40x",
        "postgresql://u:p:#?q@[::1]:5432,h2:5433/d?target_session_attrs=any&application_name=a@b",
        "postgresql:///d?host=/var/run&user=u@x",
        r"host=h  password = a\ b port='5432' dbname=d sslmode=",
        "host=h password='a b=\\'c' connect_timeout=3",
    ],
)
def test_database_urls_that_libpq_takes(url: str, tmp_path: Path) -> None:
    assert (
        load_settings(environ={"ONCEPOOL_DATABASE_URL": url}, folder=tmp_path).database_url == url
    )
    conninfo_to_dict(url)
