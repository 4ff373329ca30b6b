"""`--objective service:LEVEL`: deployments of a decoder that meet a service level."""

from __future__ import annotations

import argparse
import sys

from tensoropt.compiler.api.model import Model
from tensoropt.compiler.api.service import Service
from tensoropt.compiler.cli.output import write_text
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.planning.service import ServiceLevel
from tensoropt.compiler.report.service import (
    serve_command,
    service_csv,
    service_json,
    service_manifest,
    service_table,
)
from tensoropt.compiler.support.progress import Progress

__all__ = ["run_service"]


def run_service(model: Model, args: argparse.Namespace, request: Request, say: Progress) -> int:
    """Print the deployments; write the plan of the best to ``-o``, and its manifest, if given.

    Returns the exit status. Raises :class:`UserError` after the table if none is within the limits.
    """
    level = ServiceLevel.parse(args.objective)
    if args.output is not None:
        model.check_weights(args.output)
    also = [Model(path, model.dims) for path in args.also]
    service = model.deployments(level, request, say, also)
    say.clear()
    _print(args, service)
    sys.stdout.flush()
    row = service.report.require_best()
    if args.kubernetes is not None:
        write_text(args.kubernetes, service_manifest(service.report, row))
    if args.output is not None:
        service.compile(args.output)
        if args.format in (None, "table"):
            times = "" if row.replicas == 1 else f", {row.replicas} times"
            write_text(None, f"serve{times}: {serve_command(args.output, row, level)}\n")
    return 0


def _print(args: argparse.Namespace, service: Service) -> None:
    if args.format == "json":
        write_text(None, service_json(service.report))
    elif args.format == "csv":
        write_text(None, service_csv(service.report))
    else:
        write_text(None, service_table(service.report, colour=sys.stdout.isatty()))
