from __future__ import annotations

from tests.support.coverage import judge


def test_modules_below_the_floor_and_missing_ones_are_named() -> None:
    measured = {
        "a/good.py": (9, 10),
        "a/bad.py": (8, 10),
        "a/plain.py": (0, 0),
        "a/parts/one.py": (10, 10),
        "a/parts/two.py": (5, 10),
    }
    modules = ["a/good.py", "a/bad.py", "a/plain.py", "a/parts", "a/gone.py"]
    lines, missed = judge(measured, modules)
    assert missed == ["a/bad.py", "a/parts", "a/gone.py"]
    assert "90.0 %  9 of 10" in lines[0]
    assert lines[1].endswith("80.0 %  8 of 10  below 90 %")
    assert "75.0 %  15 of 20" in lines[3]
    assert "no such module" in lines[4]
