"""Pages of reports: their data, and the pages in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from browser import Page

__all__ = ["Open", "click", "data_of", "move", "press", "text"]

Open = Callable[[str], Page]


def data_of(page: str) -> Any:
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
    return json.loads(text)


def text(page: Page, place: str) -> str:
    return str(page.run(f"document.querySelector('{place}').textContent"))


def move(page: Page, place: str, kind: str = "mouseMoved", **more: object) -> None:
    """Move the mouse over the middle of what is at ``place``, or press there."""
    script = (
        f"(() => {{ const at = document.querySelector('{place}'); at.scrollIntoView(); "
        "const box = at.getBoundingClientRect(); "
        "return [box.left + box.width / 2, box.top + box.height / 2]; })()"
    )
    x, y = page.run(script)
    page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)


def click(page: Page, place: str) -> None:
    for kind in ("mousePressed", "mouseReleased"):
        move(page, place, kind, button="left", clickCount=1)


def press(page: Page, key: str) -> None:
    page.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key)
