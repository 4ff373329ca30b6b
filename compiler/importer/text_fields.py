"""Check for text in a model that is not UTF-8, which protobuf's Python parser returns as bytes."""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

__all__ = ["find_undecoded_text"]

# Remarks that the compiler neither reads nor exports; some exporters write them in Latin-1.
_REMARKS = frozenset({"doc_string", "metadata_props", "producer_name", "producer_version"})


def find_undecoded_text(message: Message) -> tuple[str, bytes] | None:
    """Return the name and bytes of the first text field of ``message`` that is not UTF-8."""
    for field, value in message.ListFields():
        if field.name in _REMARKS:
            continue
        values = value if field.is_repeated else (value,)
        if field.type == FieldDescriptor.TYPE_STRING:
            found = next(((field.name, text) for text in values if isinstance(text, bytes)), None)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            found = next(filter(None, map(find_undecoded_text, values)), None)
        else:
            continue
        if found is not None:
            return found
    return None
