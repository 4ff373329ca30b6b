"""HTML tables for notebooks, without styles or scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["facts_html", "table_html"]


def table_html(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of texts with a title line."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    return (
        f"<p>{escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def facts_html(title: str, facts: Sequence[tuple[str, str]]) -> str:
    """Return a table of named facts."""
    return table_html(title, ["", ""], facts)


def _cells(row: Sequence[str]) -> str:
    return "".join(f"<td>{escape(cell)}</td>" for cell in row)
