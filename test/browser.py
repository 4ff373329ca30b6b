"""Chromium without a window, spoken to through a pipe in the DevTools protocol."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

__all__ = ["NEEDS_BROWSER", "Browser", "Page", "find_browser"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--remote-debugging-pipe",
)
# Chromium reads its orders from descriptor 3 and answers on 4.
_START = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); \
os.execv(sys.argv[3], sys.argv[3:])"


def find_browser() -> str | None:
    """Return where a browser is, None where none is installed."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


NEEDS_BROWSER = pytest.mark.skipif(
    find_browser() is None, reason="no browser: expected chromium or google-chrome on the PATH"
)


class NotYetError(Exception):
    """The page was being left, or is not whole yet, when it was asked something."""


class Browser:
    """A browser with a profile of its own in ``folder``; a context manager."""

    def __init__(self, path: str, folder: Path) -> None:
        orders, self._write = os.pipe()
        self._read, answers = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (orders, answers)]
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [path, *_FLAGS, *sandbox, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *map(str, ends), *command],
            pass_fds=ends,
            stderr=subprocess.DEVNULL,
        )
        for end in (orders, answers, *ends):
            os.close(end)
        self._left, self._number = b"", 0
        self.events: list[dict[str, Any]] = []

    def open(self, url: str, width: int = 1280, height: int = 1000) -> Page:
        """Return a page that begins to load ``url``."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        page.call("Emulation.setDeviceMetricsOverride", **size)
        page.call("Page.navigate", url=url)
        return page

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Return what the browser answers to an order."""
        self._number += 1
        order: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            order["sessionId"] = session
        os.write(self._write, json.dumps(order).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            text = f"{method}: {answer['error']['message']}"
            raise NotYetError(text) if "navigated" in text else RuntimeError(text)
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            piece = os.read(self._read, 1 << 16)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._left += piece
        message, _, self._left = self._left.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write)
        os.close(self._read)
        self._process.terminate()
        self._process.wait()


class Page:
    """A page of a browser; a context manager that closes it."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return what the browser answers to an order on this page."""
        return self._browser.call(method, self._session, **parameters)

    def run(self, script: str) -> Any:
        """Return the value of an expression, a promise's when it is there."""
        facts = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", **facts)
        if "exceptionDetails" in answer:
            raise NotYetError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, script: str, timeout_s: float = 30.0) -> Any:
        """Return the value of an expression as soon as it is something, on a next page too."""
        end = time.monotonic() + timeout_s
        value = None
        while not value:
            if time.monotonic() > end:
                raise AssertionError(f"not within {timeout_s:g} s: {script}")
            with suppress(NotYetError):
                value = self.run(script)
            time.sleep(0.0 if value else 0.02)
        return value

    def complaints(self) -> list[str]:
        """Return what the page's script and the browser complained of."""
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        self.run("0")
        return [
            json.dumps(event["params"])
            for event in self._browser.events
            if event["method"] in kinds and event.get("sessionId") == self._session
        ]

    def screenshot(self) -> bytes:
        """Return a picture of the page, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
