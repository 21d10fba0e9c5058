"""Loading `module:attribute`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from processing import App, AppLoadError, RegistrationError
from processing.handlers.app import load_app

GOOD = "from processing import App\napp = App()\nclass Holder: inner = app\nother = 3\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path  # type: ignore[misc]
    for name in set(sys.modules) - before:
        if name.startswith("loadable"):
            del sys.modules[name]


def test_from_the_working_directory(folder: Path) -> None:
    (folder / "loadable_good.py").write_text(GOOD)
    app = load_app("loadable_good:app")
    assert isinstance(app, App)
    assert load_app("loadable_good:Holder.inner") is app
    assert sys.path.count(str(folder)) == 1


@pytest.mark.parametrize(
    "target, message",
    [
        ("loadable_good", "is not module:attribute, as in"),
        (":app", "is not module:attribute"),
        ("loadable_good:", "is not module:attribute"),
        ("loadable_nowhere:app", "no module 'loadable_nowhere' in .* or installed"),
        ("loadable_good.sub:app", "no module 'loadable_good.sub'"),
        ("bill/app.py:app", "is a file's path: write bill.app:app$"),
        ("./bill/app:app", "is a file's path: write bill.app:app$"),
        ("bill/__init__.py:app", "write bill:app$"),
        ("loadable_good.py:app", "write loadable_good:app$"),
        ("../elsewhere/app.py:app", "is a file's path: name the module"),
        ("loadable_good:ap", "loadable_good has no 'ap'; did you mean 'app'"),
        ("loadable_good:other", "is int, not an App"),
        ("loadable_bad:app", "its import failed: ZeroDivisionError"),
        ("loadable_inner:app", "its import failed: No module named 'loadable_missing'"),
        ("loadable_syntax:app", "its import failed: SyntaxError"),
    ],
)
def test_what_is_wrong_is_told(folder: Path, target: str, message: str) -> None:
    (folder / "loadable_good.py").write_text(GOOD)
    (folder / "loadable_bad.py").write_text("1 / 0\n")
    (folder / "loadable_inner.py").write_text("import loadable_missing\n")
    (folder / "loadable_syntax.py").write_text("def\n")
    with pytest.raises(AppLoadError, match=message):
        load_app(target)


def test_the_cause_of_a_failed_import_is_kept(folder: Path) -> None:
    (folder / "loadable_bad.py").write_text("1 / 0\n")
    with pytest.raises(AppLoadError) as caught:
        load_app("loadable_bad:app")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_wrong_registration_speaks_for_itself(folder: Path) -> None:
    (folder / "loadable_wrong.py").write_text(
        "from processing import App\napp = App()\n@app.handler('a')\nasync def f(payload): ...\n"
    )
    with pytest.raises(RegistrationError, match=r"handler 'a', f \(loadable_wrong\.py:3\): it is"):
        load_app("loadable_wrong:app")
