"""Why a child can't do its work, as an operator wants it: the app's own frames, the cause last."""

from __future__ import annotations

import traceback
from pathlib import Path

from processing.handlers.errors import OncepoolError

_OURS = str(Path(__file__).resolve().parents[1])
_IMPORT = ("<frozen importlib", str(Path(traceback.__file__).parent / "importlib"))


def explain(error: BaseException) -> str:
    """What went wrong while the app was loaded or started, in lines, of which the last says it.

    Errors of ours say it all; of others the frames in the app's code come first.
    """
    cause = error.__cause__ if isinstance(error, OncepoolError) else error
    lines: list[str] = []
    if cause is not None:
        frames = [f for f in traceback.extract_tb(cause.__traceback__) if not _is_ours(f.filename)]
        lines += "".join(traceback.format_list(frames)).splitlines()
        if isinstance(cause, SyntaxError):
            lines += "".join(traceback.format_exception_only(cause)).splitlines()[:-1]
    notes = getattr(error, "__notes__", ())
    text = str(error) if isinstance(error, OncepoolError) else _named(error)
    # In one line, as errors of drivers often have several, of which the last one says little.
    return "\n".join([*lines, " ".join(", ".join([text.strip(), *notes]).split())])


def _is_ours(filename: str) -> bool:
    return filename.startswith(_IMPORT) or filename.startswith(_OURS)


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")
