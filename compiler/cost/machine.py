"""On what kind of machine a description was measured: what has to be alike to go together."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.compiler.cost.fields import Table

__all__ = ["Machine", "read_machine"]


@dataclass(frozen=True)
class Machine:
    """The name of the processor or GPU, what ranks run on, how many of them share a machine, the
    threads of each, and the version of ONNX Runtime without its last part."""

    processor: str
    provider: str
    ranks: int
    threads: int
    onnxruntime: str

    def __str__(self) -> str:
        of = f"{self.ranks} ranks of {self.threads} threads"
        return f"{of}, {self.provider} on {self.processor}, ONNX Runtime {self.onnxruntime}"


def read_machine(table: Table) -> Machine | None:
    """Return the table ``[measured_on]``, ``None`` if it is not there."""
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
