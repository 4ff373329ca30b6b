"""Check of references to operations by number and to arguments by name."""

from __future__ import annotations

from collections.abc import Callable

from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import (
    ARGUMENT,
    CACHE,
    FOLLOWS,
    GRADIENT_OF,
    GRADIENTS,
    ID,
    NAME,
    OF,
    OPERATION,
    REPEATS,
    UPDATES,
    Key,
)
from tensoropt.dialects.verifier.carrier import Carrier

__all__ = ["References"]

Taker = Callable[[Carrier, ir.Attribute], None]


class References:
    """Collects references and their targets in any order; ``check`` compares the two."""

    def __init__(self) -> None:
        self._results: dict[int, int] = {}
        self._names: set[str] = set()
        self._to_numbers: list[tuple[Carrier, Key[int], int]] = []
        self._to_names: list[tuple[Carrier, Key[str], str]] = []
        self._gradients: list[tuple[Carrier, list[int]]] = []
        self.takers = {
            NAME.name: self._name,
            ID.name: self._number,
            GRADIENTS.name: self._fours,
            **{key.name: self._to_number(key) for key in (FOLLOWS, REPEATS)},
            **{key.name: self._to_name(key) for key in (OF, UPDATES, CACHE, GRADIENT_OF)},
        }
        """The collector of each attribute by name; it expects an attribute of the right kind."""

    def check(self) -> None:
        """Raise InvalidError for the first dangling reference."""
        for carrier, key, number in self._to_numbers:
            if number not in self._results:
                raise carrier.wrong(f"has a dangling {key.name}, expected a topt.id, got: {number}")
        for carrier, named, name in self._to_names:
            if name not in self._names:
                raise carrier.wrong(
                    f"has a dangling {named.name}, expected the name of an argument, got: '{name}'"
                )
        for carrier, values in self._gradients:
            for number, result in zip(values[::2], values[1::2], strict=True):
                what, count = f"has a dangling {GRADIENTS.name}", self._results.get(number)
                if count is None:
                    raise carrier.wrong(f"{what}, expected a topt.id, got: {number}")
                if not 0 <= result < count:
                    raise carrier.wrong(
                        f"{what}, expected one of the {count} results of {number}, got: {result}"
                    )

    def _name(self, carrier: Carrier, attribute: ir.Attribute) -> None:
        if carrier.place == ARGUMENT:
            self._names.add(NAME.kind.read(attribute))

    def _number(self, carrier: Carrier, attribute: ir.Attribute) -> None:
        number = ID.kind.read(attribute)
        if number in self._results:
            raise carrier.wrong(f"has a duplicate {ID.name}, expected a new number, got: {number}")
        self._results[number] = len(carrier.op.results) if carrier.place == OPERATION else 1

    def _fours(self, carrier: Carrier, attribute: ir.Attribute) -> None:
        values = list(GRADIENTS.kind.read(attribute))
        if len(values) % 4:
            raise carrier.wrong(
                f"has a wrong {GRADIENTS.name}, expected a multiple of 4 numbers, "
                f"got: {len(values)}"
            )
        self._gradients.append((carrier, values))

    def _to_number(self, key: Key[int]) -> Taker:
        def take(carrier: Carrier, attribute: ir.Attribute) -> None:
            self._to_numbers.append((carrier, key, key.kind.read(attribute)))

        return take

    def _to_name(self, key: Key[str]) -> Taker:
        def take(carrier: Carrier, attribute: ir.Attribute) -> None:
            self._to_names.append((carrier, key, key.kind.read(attribute)))

        return take
