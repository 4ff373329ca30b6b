"""Exports of a plan for other tools: annotations, DTensor placements, TensorRT."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.compiler.cli.output import write_text
from tensoropt.compiler.support.choices import check_known

if TYPE_CHECKING:
    from tensoropt.compiler.api.frontier import Point

__all__ = ["check_standard", "run_check_annotations", "run_int8_caches", "write_standard"]


def check_standard(args: argparse.Namespace) -> None:
    """Refuse outputs that cannot be written, before any time is spent."""
    if args.target is not None:
        from tensoropt.compiler.exporter.rank import TARGETS

        check_known("--target: unknown target", args.target, TARGETS)
    if args.annotations is not None:
        from tensoropt.compiler.exporter.standard.annotations import check_annotatable

        model = args.weights or Path(args.input)
        if model.exists():
            check_annotatable(model, args.annotations)


def write_standard(args: argparse.Namespace, point: Point) -> list[str]:
    """Write the requested exports of ``point``; return the lines to print."""
    if args.dtensor is not None:
        write_text(args.dtensor, json.dumps(point.dtensor(), indent=1) + "\n")
    if args.annotations is None:
        return []
    count, nodes = point.annotate(args.annotations)
    return [f"{args.annotations}: {count} of {nodes} nodes are annotated"]


def run_check_annotations(args: argparse.Namespace) -> int:
    """Print a line per mistake and return 1, or the number of annotated nodes and return 0."""
    from tensoropt.compiler.importer.annotations import check_annotations

    mistakes, count = check_annotations(Path(args.input))
    for line in mistakes:
        print(f"error: {args.input}: {line}", file=sys.stderr)
    if not mistakes:
        print(f"{args.input}: the annotations of {count} nodes are valid")
    return 1 if mistakes else 0


def run_int8_caches(args: argparse.Namespace) -> int:
    """Write the model with caches of 8-bit integers, and print the effect."""
    from tensoropt.compiler.exporter.standard.int8_caches import read_sample, write_int8_caches

    model, target = Path(args.input), args.int8_caches
    effect = write_int8_caches(model, target, read_sample(args.sample, model))
    print(f"{target}: {effect}")
    return 0
