"""Finding the App that a setting names."""

from __future__ import annotations

import difflib
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from processing.handlers.errors import AppLoadError, OncepoolError

if TYPE_CHECKING:
    from processing.handlers.app import App


def load_app(target: str) -> App:
    """The App that `module:attribute` names; the working directory is importable.

    Raises AppLoadError, with the cause where the module's own code failed.
    """
    from processing.handlers.app import App

    module_name, attribute = _split(target)
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise AppLoadError(f"app {target!r}: its import failed: {error}") from error
        raise AppLoadError(
            _no_path(target)
            if module_name.endswith(".py")
            else f"app {target!r}: there is no module {error.name!r} in {folder} or installed; "
            "check the name, or start where it can be imported"
        ) from None
    except OncepoolError:
        raise
    except Exception as error:
        raise AppLoadError(
            f"app {target!r}: its import failed: {type(error).__name__}: {error}"
        ) from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise AppLoadError(_no_attribute(target, found, name))
        found = getattr(found, name)
    if not isinstance(found, App):
        raise AppLoadError(
            f"app {target!r} is {type(found).__name__}, not an App: name the object that "
            "processing.App() made"
        )
    return found


def _split(target: str) -> tuple[str, str]:
    """Module and attribute. Raises AppLoadError."""
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        raise AppLoadError(
            f"app {target!r} is not module:attribute, as in 'shop.app:app'; "
            "set ONCEPOOL_APP or give it to the command"
        )
    if "/" in module_name:
        raise AppLoadError(_no_path(target))
    return module_name, attribute


def _no_path(target: str) -> str:
    path, _, attribute = target.partition(":")
    folder = Path.cwd()
    place = (folder / path).resolve()
    name = ".".join(place.relative_to(folder).parts) if place.is_relative_to(folder) else ""
    name = name.removesuffix(".py").removesuffix(".__init__")
    if not all(part.isidentifier() for part in name.split(".")):
        return (
            f"app {target!r} is a file's path: name the module, as in 'shop.app:app', and start"
            " where it can be imported"
        )
    return f"app {target!r} is a file's path: write {name}:{attribute}"


def _no_attribute(target: str, holder: object, name: str) -> str:
    from processing.handlers.app import App

    apps = [n for n, value in vars(holder).items() if isinstance(value, App)]
    nearest = apps or difflib.get_close_matches(name, dir(holder), n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else "; define it as `= App()`"
    return f"app {target!r}: {getattr(holder, '__name__', holder)} has no {name!r}{hint}"
