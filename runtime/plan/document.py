"""plan.json and similar documents: strict JSON reader, digests and schema validation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

__all__ = ["document_sha256", "read_json", "schema_error", "schema_errors"]

_TOO_DEEP = "top level: nested too deeply"
_PLAN = Path(__file__).with_name("plan.schema.json")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file in UTF-8; raises ``OSError`` or ``ValueError``.

    Refuses NaN and infinity: Python's reader takes them, but they are not JSON.
    """
    try:
        return json.loads(path.read_bytes().decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


def document_sha256(document: Mapping[str, object]) -> str:
    """Return the SHA-256 of a document without its own entry ``sha256``.

    It is computed over the UTF-8 bytes of the JSON with sorted keys, without spaces, in ASCII.
    """
    rest = {key: value for key, value in document.items() if key != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def schema_error(document: Any, schema: Path = _PLAN) -> str | None:
    """Return the most relevant place at which ``document`` violates a schema, None if it is valid.

    ``schema`` is the schema of plans unless another is passed.
    """
    from jsonschema.exceptions import best_match

    try:
        error = best_match(_validator(schema).iter_errors(document))
        return None if error is None else _text(error)
    except RecursionError:
        return _TOO_DEEP


def schema_errors(document: Any, schema: Path = _PLAN, most: int = 100) -> list[str]:
    """Return the first ``most`` places at which ``document`` violates a schema."""
    try:
        errors = _validator(schema).iter_errors(document)
        return [_text(error) for error in islice(errors, most)]
    except RecursionError:
        return [_TOO_DEEP]


def _text(error: ValidationError) -> str:
    place = error.json_path.removeprefix("$").removeprefix(".") or "top level"
    message, schema = str(error.message), error.schema
    # The message for a pattern is a regular expression: the schema's description reads better.
    if error.validator == "pattern" and isinstance(schema, Mapping) and "description" in schema:
        message = f"expected {schema['description']}, got: {error.instance!r}"
    return f"{_shorten(place)}: {_shorten(' '.join(message.split()))}"


@cache
def _validator(schema: Path) -> Validator:
    import jsonschema

    own = jsonschema.Draft202012Validator
    types = own.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    text = schema.read_text(encoding="utf-8")
    extend: Callable[..., type[Validator]] = jsonschema.validators.extend
    return extend(own, type_checker=types)(json.loads(text))


def _shorten(text: str, limit: int = 160) -> str:
    """Cut out the middle: a schema's message begins with the value, which may be the whole file."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]} ... {text[-half:]}"
