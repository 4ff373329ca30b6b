"""The process that checks grammars: `python -m tensoropt.runtime.text.grammar_checking FD`.

A grammar is untrusted: clients send schemas and patterns. Ranks compile only grammars that this
process has compiled, by the same library with the same limits, and with a smaller stack.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.messages import Message, receive
from tensoropt.runtime.text.confined import Confined, answer_confined
from tensoropt.runtime.text.grammar import (
    NICE,
    STACK_BYTES,
    Grammars,
    check_installation,
)

__all__ = ["CHECK_S", "LONGEST_GRAMMAR", "GrammarChecker", "main"]

CHECK_S = 1.0
"""CPU seconds per grammar, after which the kernel kills the process."""

LONGEST_GRAMMAR = 1 << 18
"""Most characters of a grammar."""

_MEMORY = 1 << 28  # bytes that a grammar may take


class GrammarChecker:
    """Checks grammars for a vocabulary, see `Grammars`, in a process of its own. Thread-safe."""

    def __init__(self, tokenizer: Path, size: int, end: Sequence[int]) -> None:
        first = {"tokenizer": str(tokenizer.absolute()), "size": size, "end": [*end]}
        module = "tensoropt.runtime.text.grammar_checking"
        self._process = Confined(module, "grammar", CHECK_S, first)

    def check(self, grammar: str) -> None:
        """Raise `UserError` for a grammar that is wrong, or exceeds its limits."""
        check_installation()
        if len(grammar) > LONGEST_GRAMMAR:
            size = len(grammar)
            raise UserError(f"grammar: expected at most {LONGEST_GRAMMAR} characters, got: {size}")
        error = self._process.ask({"grammar": grammar})["error"]
        if error is not None:
            raise UserError(error)

    def close(self) -> None:
        """End the process; it starts again when needed."""
        self._process.close()


def main(descriptor: int) -> None:
    """Receive a vocabulary, then check the grammar of each message."""
    connection = Connection(descriptor)
    first = receive(connection)
    grammars = Grammars(Path(first["tokenizer"]), first["size"], first["end"])

    def check(message: Message) -> Message:
        try:
            grammars.matcher(message["grammar"])
        except UserError as error:
            return {"error": str(error)}
        return {"error": None}

    with suppress(UserError):  # each answer repeats it
        grammars.load()  # before its time and memory are limited
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES // 2, STACK_BYTES // 2))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory_bytes = pages * os.sysconf("SC_PAGE_SIZE") + _MEMORY
    answer_confined(connection, check, limit_s=CHECK_S, memory_bytes=memory_bytes)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except EOFError:
        sys.exit(0)
