"""Pages: each link leads somewhere, and the site has them all."""

from __future__ import annotations

from pathlib import Path

from tests.support import links

ROOT = Path(__file__).resolve().parents[2]


def test_each_link_and_anchor_leads_somewhere() -> None:
    assert links.broken_links(ROOT) == {}


def test_the_site_has_each_page_once() -> None:
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}

    assert sorted(links.site_pages(ROOT)) == sorted(
        {*there, "README.md", "CHANGELOG.md", "benchmarks/README.md"}
    )


def test_the_readme_names_each_page() -> None:
    named = {link.partition("#")[0] for link in links.links((ROOT / "README.md").read_text())}
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")}

    assert there - named == set()


def test_what_leads_nowhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(
        "# A `b c`: d\n[a](docs/a.md) [b](docs/b.md) [c](docs/a.md#not-here) [d](#a-b-c-d)\n"
        "[e](docs/a.md#twice-1) [f](https://example.com/x) `[g](g.md)`\n```\n[h](h.md)\n# i\n```\n"
        "[i](#i) [j](docs) [k](docs/a.txt#x)\n"
    )
    (tmp_path / "docs" / "a.md").write_text("# Twice\n## Twice\n")
    (tmp_path / "docs" / "a.txt").write_text("x")

    assert links.broken_links(tmp_path) == {
        "README.md": ["docs/b.md", "docs/a.md#not-here", "#i", "docs/a.txt#x"]
    }
