"""Why a child can't do its work, as an operator wants it: the app's own frames, the cause last."""

from __future__ import annotations

import traceback
from pathlib import Path

from processing.handlers.errors import OncepoolError

_OURS = str(Path(__file__).resolve().parents[1])
_IMPORT = ("<frozen importlib", str(Path(traceback.__file__).parent / "importlib"))


def explain(error: BaseException) -> str:
    """What went wrong while the app was loaded or started, in lines.

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
    text = str(error) if isinstance(error, OncepoolError) else _one_line(error)
    return "\n".join([*lines, ", ".join([text, *notes])])


def _is_ours(filename: str) -> bool:
    return filename.startswith(_IMPORT) or filename.startswith(_OURS)


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")
