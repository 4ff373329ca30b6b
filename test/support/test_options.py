"""Declared options: their names, their help, their values, and combinations of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.options import (
    Combination,
    Interface,
    Option,
    check_combinations,
    number,
    one_of,
    options_of,
    whole,
)


@dataclass(frozen=True)
class Oven:
    """Some options."""

    heat_c: float = Option(
        "C", "heat, such as 'heat=200', of {baking_mode} air", number("a heat", 0, 300)
    ).field(180.0)
    baking_mode: str | None = Option("NAME", "mode", one_of("mode", ["air", "grill"])).field(None)
    trays: tuple[str, ...] = Option("TRAY", "trays", repeats=True, in_python="; any").field(())
    clock: int = 0


def test_names() -> None:
    names = [interface.name_of("baking_mode") for interface in Interface]
    assert names == ["--baking-mode", "baking_mode", "baking-mode"]


@pytest.mark.parametrize(
    ("interface", "helps"),
    [
        (
            Interface.COMMAND,
            [
                "heat, such as 'heat=200', of --baking-mode air (default 180.0)",
                "mode",
                "trays (repeatable)",
            ],
        ),
        (
            Interface.PYTHON,
            [
                "heat, such as ``heat=200``, of ``baking_mode`` air (default 180.0)",
                "mode",
                "trays; any",
            ],
        ),
        (
            Interface.PIPELINE,
            ["heat, such as ``heat=200``, of ``baking-mode`` air", "mode", "trays"],
        ),
    ],
)
def test_help(interface: Interface, helps: list[str]) -> None:
    options = options_of(Oven)
    assert [*options] == ["heat_c", "baking_mode", "trays"]
    assert [option.help_in(interface) for option in options.values()] == helps


def test_values() -> None:
    assert options_of(Oven)["heat_c"].read("heat", "20") == 20.0
    assert whole(1, 4)("trays", 3) == 3
    for given in ("301", "nan", "warm", float("inf")):
        with pytest.raises(UserError, match=f"^heat: expected a heat, got: '{given}'"):
            options_of(Oven)["heat_c"].read("heat", given)
    with pytest.raises(UserError, match=r"^mode: unknown mode 'gril', .* did you mean 'grill'\?"):
        options_of(Oven)["baking_mode"].read("mode", "gril")


def test_owners() -> None:
    option = Option("H", "height", owners=["low", "middle", "high"], name="grill_height")
    option.check_owner("mode", ["air", "low"], Interface.COMMAND)
    message = "--grill-height belongs to --mode low, middle or high, got: --mode air"
    with pytest.raises(UserError, match=message):
        option.check_owner("mode", ["air"], Interface.COMMAND)


def test_errors_of_lower_layers_are_renamed() -> None:
    for interface, name in (
        (Interface.COMMAND, "--grill-height"),
        (Interface.PYTHON, "grill_height"),
    ):
        with (
            pytest.raises(UserError, match=f"^{name} 3: expected 2, as in --mode"),
            interface.naming(),
        ):
            raise UserError("--grill-height 3: expected 2, as in --mode")
    with pytest.raises(UserError, match=r"^m\.onnx: expected"), Interface.PYTHON.naming():
        raise UserError("m.onnx: expected a model")


ROWS = (
    Combination(["a", "b"], "{given} without {other}", excludes=["c", "d=1"]),
    Combination(["d"], "{given} needs more than {e}", needs=["f & g"]),
)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a b", None),
        ("c d=1", None),
        ("b d=2", None),
        ("a b c", "-A without -C"),
        ("b d=1", "-B without -D=1"),
        ("d e f", "-D needs more than -E"),
        ("d e f g", None),
    ],
)
def test_combinations(given: str, message: str | None) -> None:
    spelled = {term: f"-{term.upper()}" for term in given.split()}
    if message is None:
        check_combinations(ROWS, spelled)
        return
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        check_combinations(ROWS, spelled)
