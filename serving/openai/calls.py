"""Calls of tools within a text, as the text grows."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

from tensoropt.runtime.text.stopping import partial_stop
from tensoropt.serving.openai.tools import CallForm

__all__ = ["CallReader"]


class CallReader:
    """Splits a text into prose and calls.

    >>> reader = CallReader(CallForm("<call>", "</call>", "arguments"))
    >>> reader.add('So: <ca'), reader.add('ll>{"name": "f", "arguments": {"n": 1}}</call>')[0]
    (('So: ', []), '')
    """

    def __init__(self, form: CallForm) -> None:
        self._form = form
        self._held = ""
        self._is_call = self._is_prose = False
        self.count = 0

    def add(self, text: str) -> tuple[str, list[dict[str, Any]]]:
        """Return the further prose, and the calls that are complete, in the protocol's form."""
        self._held += text
        # Each try reads the whole call again, so only a last character is a reason to try.
        may_end = (self._form.end or "}")[-1] in text
        prose, calls = "", []
        while True:
            if not self._is_call:
                prose += self._take_prose()
            call = self._take_call() if self._is_call and may_end else None
            if call is None:
                break
            calls.append(call)
        return (prose if not self.count or prose.strip() else ""), calls

    def rest(self) -> tuple[str, list[dict[str, Any]]]:
        """Return the remaining prose and call at the end, which the text's limit may have cut.

        A cut call has the arguments so far; without its whole name there is none.
        """
        rest, self._held = self._held, ""
        if not self._is_call:
            is_prose = rest.strip() not in ("", self._form.begin.strip())
            return (rest if is_prose else ""), []
        text = rest.lstrip()
        begun = re.match("\\" + self._form.opening(_NAME), text)  # it begins with a brace
        if begun is None:
            return "", []
        try:
            size = _DECODER.raw_decode(text, begun.end())[1]
        except ValueError:
            size = len(text)
        return "", [self._describe(begun[1], text[begun.end() : size])]

    def _take_prose(self) -> str:
        """Return the text up to the next call, if one begins."""
        begin = self._form.begin
        if not begin:
            self._is_call = not self._is_prose and self._held.lstrip().startswith("{")
            self._is_prose |= bool(self._held.strip()) and not self._is_call
            size = len(self._held) if self._is_prose else 0
            prose, self._held = self._held[:size], self._held[size:]
            return prose
        prose, found, after = self._held.partition(begin)
        self._is_call = bool(found)
        if self._is_call:
            self._held = after
            return prose
        size = len(self._held) - partial_stop(self._held, [begin])
        prose, self._held = self._held[:size], self._held[size:]
        return prose

    def _take_call(self) -> dict[str, Any] | None:
        """Return the call that the text begins with, None if it is not complete."""
        text, end = self._held.lstrip(), self._form.end
        try:
            called, size = _DECODER.raw_decode(text)
        except ValueError:
            return None
        if not text.startswith(end, size):
            return None
        self._held, self._is_call = text[size + len(end) :], False
        name = called["name"]
        return self._describe(name, text[len(self._form.opening(name)) : size - 1])

    def _describe(self, name: str, arguments: str) -> dict[str, Any]:
        """Return the next call in the protocol's form."""
        self.count += 1
        return {
            "index": self.count - 1,
            "id": f"call_{uuid.uuid4().hex[:24]}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }


_DECODER = json.JSONDecoder()
_NAME = "([a-zA-Z0-9_-]+)"
