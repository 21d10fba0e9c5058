"""Rules of the house: sizes, names, what pages say of files, what is public."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.support import house

ROOT = Path(__file__).resolve().parents[2]

TO_WRITE = {"shop.py", "shop/shop/app.py"}
"""Files that a page asks its reader to write, or to have made."""

SOMEWHERE = "/{}/main".format("work")

PUBLIC = {
    "processing": [
        *("App", "AppLoadError", "Done", "InvalidPayload", "InvalidResult", "Message", "NotDone"),
        *("RawMessage", "RegistrationError", "Reject", "Request", "Retry", "RetryPolicy", "Skip"),
        "Tick",
        "Unknown",
    ],
    "processing.testing": [
        *("FakeCursor", "Kit", "KitError", "RunOutcome", "Sandbox", "kill_worker", "run"),
        "run_batch",
    ],
    "feedback.outbox": ["add", "add_many"],
    "feedback": [
        *("AsyncClient", "Client", "ClientClosed", "ConfigurationError", "Conflict"),
        *("DeliveryFailed", "DeliveryPending", "OncepoolError", "QueueFull", "RequestTooLarge"),
        "Result",
        *("ResultMismatch", "ResultsFailed", "State", "Status", "StoreUnavailable", "WaitTimeout"),
    ],
}


def test_no_class_name_stands_twice() -> None:
    assert house.classes_twice(ROOT) == {}


def test_no_file_is_long_without_a_reason() -> None:
    assert house.long_files(ROOT) == {}


def test_no_function_is_long_without_a_reason() -> None:
    assert house.long_functions(ROOT) == {}


def test_files_that_pages_name_are_there() -> None:
    found = house.missing_files(ROOT)
    missing = [(page, name) for page, names in found.items() for name in names]
    assert [hit for hit in missing if hit[1] not in TO_WRITE] == []


def test_the_file_map_is_the_tree() -> None:
    assert house.mapped((ROOT / "docs" / "design.md").read_text()) == house.to_map(ROOT)


def test_no_path_of_a_machine_is_left_in_a_file() -> None:
    assert house.machine_paths(ROOT) == {}


def test_the_maintenance_process_has_one_name() -> None:
    assert house.files_with("cle" + "rk", ROOT) == []


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names(package: str) -> None:
    """Programs of others import them: one more is a promise, one less breaks them."""
    module = import_module(package)
    assert sorted(module.__all__) == sorted(PUBLIC[package])
    assert all(getattr(module, name) is not None for name in PUBLIC[package])
    assert set(PUBLIC[package]) <= set(dir(module))


# Each rule, on a tree that breaks it


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in (*house.SOURCES, "docs", "tests"):
        (tmp_path / folder).mkdir()
    return tmp_path


def test_a_file_that_the_map_does_not_have_is_found(tree: Path) -> None:
    (tree / "consumer" / "new.py").write_text("")
    (tree / "consumer" / "__init__.py").write_text("")
    page = "## File map\n\n**`consumer/`**: x\n\n| file | |\n|---|---|\n| `old.py` | Old. |\n"
    assert house.mapped(page) == ["consumer/old.py"]
    assert house.to_map(tree) == ["consumer/new.py"]


def test_a_second_class_of_a_name_is_found(tree: Path) -> None:
    (tree / "stack" / "one.py").write_text("class A: ...\nclass B: ...\n")
    assert house.classes_twice(tree) == {}
    (tree / "benchmarks" / "two.py").write_text("def made():\n    class A: ...\n")
    assert house.classes_twice(tree) == {"A": ["stack/one.py", "benchmarks/two.py"]}


def test_a_long_file_is_found_unless_it_says_why(tree: Path) -> None:
    short, long = "x = 1\n" * house.MOST_LINES, "x = 1\n" * (house.MOST_LINES + 1)
    (tree / "consumer" / "short.py").write_text(short)
    (tree / "consumer" / "long.py").write_text(long)
    (tree / "consumer" / "said.py").write_text(f"# long: a table\n{long}")
    (tree / "tests" / "test_it.py").write_text(long)
    (tree / "tests" / "test_all.py").write_text("x = 1\n" * 501)
    assert house.long_files(tree) == {"consumer/long.py": 351, "tests/test_all.py": 501}


def test_a_long_function_is_found_unless_it_says_why(tree: Path) -> None:
    def function(name: str, lines: int, first: str = "    def inner():") -> str:
        return f"def {name}():\n{first}\n" + "        x = 1\n" * (lines - 2)

    (tree / "feedback" / "some.py").write_text(
        function("short", 50)
        + function("long", 51)
        + function("said", 52, "    # long: one step each\n    def inner():")
    )
    assert house.long_functions(tree) == {
        "feedback/some.py::long": 51, "feedback/some.py::inner": 51,
    }  # fmt: skip


def test_a_file_that_is_not_there_is_found(tree: Path) -> None:
    (tree / "stack" / "kafka.py").touch()
    (tree / "docs" / "stack.md").write_text(
        "`stack/kafka.py`, kafka.py, [this](stack.md), ../README.md, https://a.example/b.py"
    )
    (tree / "README.md").write_text("docs/stack.md, `stack/redis.py`, redis.py, `stack/old/`")
    assert house.missing_files(tree) == {"README.md": ["stack/redis.py", "redis.py", "stack/old/"]}


def test_a_path_of_a_machine_is_found(tree: Path) -> None:
    (tree / "docs" / "fine.md").write_text("docs/work/x, https://a.example/work/x, {base}/work/x")
    (tree / "docs" / "page.md").write_text(f"see {SOMEWHERE}")
    assert house.machine_paths(tree) == {"docs/page.md": [SOMEWHERE]}


def test_a_word_is_found_in_texts_and_names(tree: Path) -> None:
    (tree / "docs" / "page.md").write_text("The Word.")
    (tree / "tests" / "word_list.py").touch()
    assert house.files_with("word", tree) == ["docs/page.md", "tests/word_list.py"]
