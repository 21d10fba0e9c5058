"""Links of the project's pages, as functions of a tree that return what leads nowhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

PAGES = ("README.md", "CHANGELOG.md", "benchmarks/*.md", "docs/**/*.md")
"""What the site is made of."""

LINK = re.compile(r"\]\(([^)\s]+)\)")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")
FENCE = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
NAMED = re.compile(r'<a (?:id|name)="([^"]+)"')
NOT_IN_AN_ANCHOR = re.compile(r"[^\w\- ]")


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as code hosts and the site make them."""
    plain = FENCE.sub("", text)
    seen: Counter[str] = Counter()
    found = set(NAMED.findall(plain))
    for heading in HEADING.findall(plain):
        words = LINK.sub("", heading.replace("[", "")).replace("`", "").lower()
        anchor = NOT_IN_AN_ANCHOR.sub("", words).replace(" ", "-")
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return found


def links(text: str) -> Iterator[str]:
    """Where a page links to, code left out; not to other sites."""
    for link in LINK.findall(CODE.sub("", FENCE.sub("", text))):
        if not ELSEWHERE.match(link):
            yield link


def broken_links(root: Path) -> dict[str, list[str]]:
    """Page -> its links to files, or anchors in pages, that are not there."""
    texts = {path.resolve(): path.read_text() for path in pages(root)}
    found: dict[str, list[str]] = {}
    for page, text in texts.items():
        broken = [link for link in links(text) if not _leads(page, link, texts)]
        if broken:
            found[page.relative_to(root).as_posix()] = broken
    return found


def pages(root: Path) -> list[Path]:
    """The project's pages."""
    return sorted({path for pattern in PAGES for path in root.glob(pattern)})


def _leads(page: Path, link: str, texts: dict[Path, str]) -> bool:
    place, _, anchor = link.partition("#")
    target = (page.parent / place).resolve() if place else page
    if not target.exists():
        return False
    return not anchor or (target in texts and anchor in anchors(texts[target]))


class Loader(yaml.SafeLoader):
    """Leaves out what mkdocs takes for Python's objects."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def site_pages(root: Path) -> list[str]:
    """The pages in the navigation of mkdocs.yml, in order."""
    # Loader is a SafeLoader.
    site = yaml.load((root / "mkdocs.yml").read_text(), Loader=Loader)
    return list(_leaves(site["nav"]))


def _leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for inner in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _leaves(inner)
