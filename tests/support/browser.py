"""A browser before the gateway's pages, and somebody who sits at it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.gateway_process import WAIT

NAMES = ("chromium", "chromium-browser", "google-chrome")
LOOK = WAIT * 1000
SIZE = {"width": 1280, "height": 900}


def browser_program() -> str | None:
    """The browser of this machine; None where it has none: apt-get install chromium."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def started(program: str) -> Iterator[Any]:
    """It, driven by playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Its sandbox needs rights that containers seldom have; it sees a test's pages alone.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


class Reader:
    """Somebody before a browser, who hears what its console says."""

    def __init__(self, page: Any, root: str) -> None:
        self.page = page
        self.root = root
        self.said: list[str] = []
        page.set_default_timeout(LOOK)
        page.on("console", lambda one: self.said.append(f"{one.type}: {one.text}"))
        page.on("pageerror", lambda error: self.said.append(str(error)))

    def open(self, path: str) -> Any:
        """A page; what was answered."""
        return self.page.goto(f"{self.root}{path}")

    def log_in(self, key: str) -> None:
        """With the keyboard alone."""
        self.open("/")
        self.page.keyboard.type(key)
        self.page.keyboard.press("Enter")
        self.page.wait_for_url(f"{self.root}/")

    def text(self) -> str:
        return str(self.page.inner_text("main"))


@contextmanager
def reader(browser: Any, root: str, scheme: str = "light") -> Iterator[Reader]:
    """In a window of its own, which likes its pages so."""
    context = browser.new_context(color_scheme=scheme, viewport=SIZE)
    try:
        yield Reader(context.new_page(), root)
    finally:
        context.close()
