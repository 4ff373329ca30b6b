"""Rendering of a report as one HTML file without external resources."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["SCRIPTS", "page_of"]

SCRIPTS = ("base", "frontier", "graph", "timeline", "stages", "tables")
_FOLDER = Path(__file__).parent
# Characters that could close the element with the data, or open another element inside it.
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def page_of(data: Mapping[str, Any], title: str) -> str:
    """Return the page that shows ``data``; texts in ``data`` are escaped, so none is run.

    The page's content policy allows its own script, by its hash, and no external resource.
    """
    script = "\n".join(_part(f"{name}.js") for name in SCRIPTS)
    style = _part("report.css")
    encoded = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    parts = {
        "policy": _policy(script, style),
        "title": html.escape(title),
        "style": style,
        "data": encoded.translate(_UNSAFE),
        "script": script,
    }
    # In one pass: an inserted text may itself contain a name in braces.
    return re.sub(r"\{(\w+)\}", lambda match: parts[match[1]], _part("report.html"))


def _part(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
