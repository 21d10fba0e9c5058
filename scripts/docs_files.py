"""A hook of mkdocs: the site's files are the repository's pages, and whatever those link to."""

from __future__ import annotations

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from tests.support.links import links, pages  # noqa: E402 - it is found now


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Each under its path from the root. Of files that are no pages only those that are linked."""
    theme = [file for file in files if file.abs_src_path is None or not _ours(file.abs_src_path)]
    ours = pages(ROOT)
    linked = {target for page in ours for target in _targets(page)}
    return Files(
        [
            *theme,
            *(
                File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))
                for path in sorted({*ours, *linked})
            ),
        ]
    )


def _ours(path: str) -> bool:
    return Path(path).is_relative_to(ROOT / "docs")


def _targets(page: Path) -> list[Path]:
    """Files that a page links to, which need be no pages."""
    places = (link.partition("#")[0] for link in links(page.read_text("utf-8")))
    found = [(page.parent / place).resolve() for place in places]
    return [path for path in found if path.is_file() and path.is_relative_to(ROOT)]
