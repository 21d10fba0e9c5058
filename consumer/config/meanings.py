"""What each setting means: the docstring below its field.

Read from the source as a whole. That pydantic can collect them (`use_attribute_docstrings`) takes
a tenth of a command's start: it tokenizes the class, in each process that imports it.
"""

from __future__ import annotations

import ast
import functools
import inspect
from itertools import pairwise

from consumer.config import settings


def meaning(name: str) -> str:
    """What a setting means, in one line; nothing where the program is installed without source."""
    return _docstrings().get(name, "")


@functools.cache
def _docstrings() -> dict[str, str]:
    try:
        module = ast.parse(inspect.getsource(settings))
    except OSError:
        return {}
    statements = next(
        node.body
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name == settings.Settings.__name__
    )
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(statements)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
