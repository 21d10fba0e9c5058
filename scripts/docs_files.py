"""A hook of mkdocs: the site's files are the repository's pages, and whatever those link to."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CHANGELOG.md", "benchmarks/README.md", "docs/**/*.md")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Each under its path from the root. Of files that are no pages only those that are linked."""
    theme = [file for file in files if file.abs_src_path is None or not _ours(file.abs_src_path)]
    pages = sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})
    linked = {target for page in pages for target in _targets(page)}
    return Files(
        [
            *theme,
            *(
                File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))
                for path in sorted({*pages, *linked})
            ),
        ]
    )


def _ours(path: str) -> bool:
    return Path(path).is_relative_to(ROOT / "docs")


def _targets(page: Path) -> list[Path]:
    """Files that a page links to, which need be no pages."""
    links = (link for link in LINK.findall(page.read_text("utf-8")) if not ELSEWHERE.match(link))
    found = [(page.parent / link).resolve() for link in links]
    return [path for path in found if path.is_file() and path.is_relative_to(ROOT)]
