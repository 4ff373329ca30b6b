"""Machine on which a description was measured; descriptions combine only if it is the same."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.compiler.cost.fields import Table

__all__ = ["Machine", "read_machine"]


@dataclass(frozen=True)
class Machine:
    """Processor or GPU, execution provider, ranks per machine, threads per rank, runtime version.

    ``onnxruntime`` is the version of ONNX Runtime without its last component.
    """

    processor: str
    provider: str
    ranks: int
    threads: int
    onnxruntime: str

    def __str__(self) -> str:
        of = f"{self.ranks} ranks of {self.threads} threads"
        return f"{of}, {self.provider} on {self.processor}, ONNX Runtime {self.onnxruntime}"


def read_machine(table: Table) -> Machine | None:
    """Return the table ``[measured_on]``, ``None`` if it is absent."""
    if not table.names():
        return None
    found = Machine(
        table.text("processor"),
        table.text("provider"),
        table.count("ranks"),
        table.count("threads"),
        table.text("onnxruntime"),
    )
    table.reject_unread()
    return found
