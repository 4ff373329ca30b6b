"""The table of refused combinations names flags that exist."""

from __future__ import annotations

from tensoropt.compiler.cli import combinations
from tensoropt.compiler.cli.arguments import build_parser
from tensoropt.compiler.cli.combinations import COMBINATIONS


def test_every_term_of_the_table_can_be_given() -> None:
    parser = build_parser()
    flags = {action.dest for action in parser._actions}
    groups = {group.title for group in parser._action_groups}
    kinds = {value for value in vars(combinations).values() if isinstance(value, str)}
    terms = {
        part
        for row in COMBINATIONS
        for term in (*row.given, *row.excludes, *row.needs)
        for part in term.split(" & ")
    }
    known = flags | groups | {kind for kind in kinds if " " in kind}
    assert {term for term in terms if term.partition("=")[0] not in known} == set()
