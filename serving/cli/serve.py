"""``tensoropt-serve``: answer requests for plans over HTTP and gRPC."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensoropt.runtime.plan.dims import parse_ranges
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.kinds import SECONDS, integer, number
from tensoropt.runtime.support.options import add_flags, options_in
from tensoropt.runtime.support.places import FORMS, Folder, Input, Output
from tensoropt.runtime.support.rank_options import SessionOptions
from tensoropt.runtime.support.version import TOOL
from tensoropt.serving.options import POOLINGS, ServerOptions, ServingOptions, TextLimits

__all__ = ["build_parser", "main"]

_DESCRIPTION = """\
Serve plans by the Open Inference Protocol (KServe's and Triton's), over HTTP and gRPC. Ranks are
started once and sleep between requests; requests share runs up to the plan's batch size.
A plan's model is served as NAME, by default the name of the plan's folder.
Without --api-key-file there is no authentication: every client that reaches --host may use the
models.
Exit status: 0 after SIGTERM or Ctrl-C, once all requests in progress are answered; 1 with one line
of error."""

_RANK_FLAGS = "provider", "threads", "share_gpus", "cuda_graphs", "custom_ops", "rounding"
_LIMITS = {
    "stall_s": "restart ranks if a run or a step of a text takes longer (--timeout)",
    "start_timeout_s": "restart ranks that are not ready after S seconds (%(default)g)",
}
_START_TIMEOUT_S = 600.0

_PLAN = Input(str, separators="=")

_NEEDED = ("grpc", "grpc_health", "httptools", "prometheus_client", "uvicorn", "fastapi")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    arguments = build_parser().parse(argv)
    plans, prefills = _plans(arguments.plans), _plans(arguments.prefill)
    if arguments.export_triton is not None and prefills:
        raise UserError("--prefill: not with --export-triton")
    if arguments.export_triton is not None:
        return _export(arguments, plans)
    _check_installation()
    return _serve(arguments, plans, prefills)


def _plans(texts: Sequence[str]) -> dict[str, Path]:
    """Return plan folders by the served names of their models."""
    plans: dict[str, Path] = {}
    for text in texts:
        name, is_named, folder = text.partition("=")
        path = Path(folder if is_named else text)
        name = name if is_named else path.resolve().name
        if not name or "/" in name or not name.isprintable():
            raise UserError(f"{text}: expected NAME=PLAN, with a name that fits into an address")
        if name in plans:
            raise UserError(f"{text}: the name '{name}' is taken, expected NAME=PLAN with another")
        plans[name] = path
    return plans


def _check_installation() -> None:
    from tensoropt.runtime.support.onnx_runtime import installation_fault

    fault = installation_fault()
    if fault is not None:
        raise UserError(fault)
    for name in _NEEDED:
        if importlib.util.find_spec(name) is None:
            raise UserError(f"{name} is not installed: pip install 'tensoropt[serve]'")


def _serve(
    arguments: argparse.Namespace, plans: Mapping[str, Path], prefills: Mapping[str, Path]
) -> int:
    from tensoropt.runtime.support.http_server import listen
    from tensoropt.serving.http.body import Bodies
    from tensoropt.serving.log import set_up
    from tensoropt.serving.metrics import Metrics
    from tensoropt.serving.openai.routes import openai_routes
    from tensoropt.serving.opening import Opener
    from tensoropt.serving.protocol.keys import read_keys
    from tensoropt.serving.server import serve
    from tensoropt.serving.service import Service
    from tensoropt.serving.side_process import SideProcess

    keys = read_keys(arguments.api_key, arguments.api_key_file)
    set_up(is_json=arguments.log_format == "json", has_requests=not arguments.no_access_log)
    listener = listen("HTTP", arguments.host, arguments.port)
    with listener:
        metrics = Metrics()
        session = _session_options(arguments)
        limits = TextLimits(
            arguments.queue,
            arguments.max_prompts,
            arguments.slots,
            arguments.context,
            arguments.step_tokens,
            arguments.timeout,
            arguments.speculate,
        )
        opener = Opener(plans, prefills, session, _options(arguments), limits, metrics)
        models, texts = opener.open()
        service = Service(models, metrics, arguments.timeout, texts)
        options = ServerOptions(
            host=arguments.host,
            grpc_port=None if arguments.no_grpc else arguments.grpc_port,
            grace_s=arguments.grace,
            address_file=arguments.address_file,
            keys=keys,
        )
        most = arguments.max_body << 20  # from MiB
        together = None if arguments.max_bodies is None else arguments.max_bodies << 20
        bodies = Bodies(most, together, SideProcess(most, arguments.timeout))
        routes = openai_routes(service, bodies, arguments.timeout)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve(service, listener, options, bodies, routes, opener.reopen))
    return 0


def _loop_factory() -> Any:
    """Return uvloop's event loop if installed: it takes half the time of asyncio's."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


def _export(arguments: argparse.Namespace, plans: Mapping[str, Path]) -> int:
    from tensoropt.runtime.plan.plan import Plan
    from tensoropt.serving.opening import check_sizes
    from tensoropt.serving.triton.repository import export

    session, options = _session_options(arguments), _options(arguments)
    check_sizes([*map(Plan.load, plans.values())], session.dims)
    export(arguments.export_triton, plans, session, options)
    return 0


def _session_options(arguments: argparse.Namespace) -> SessionOptions:
    """Return the options of all sessions; ranks may be silent for as long as a request may take."""
    options = {**options_in(arguments, SessionOptions), "dims": parse_ranges(arguments.dims)}
    return SessionOptions(**{**options, "stall_s": arguments.stall_s or arguments.timeout})


def _options(arguments: argparse.Namespace) -> ServingOptions:
    return ServingOptions(
        batch_delay_s=arguments.batch_delay_ms / 1e3,
        max_batch=arguments.max_batch,
        is_batching=not arguments.no_batching,
        queue=arguments.queue,
        timeout_s=arguments.timeout,
        pooling=arguments.pooling,
        context=arguments.context,
    )


def build_parser() -> Parser:
    parser = Parser(
        prog="tensoropt-serve",
        description=_DESCRIPTION,
    )
    add = parser.add_argument
    add("plans", nargs="+", type=_PLAN, metavar="[NAME=]PLAN", help="plan directory")
    add("--prefill", action="append", type=_PLAN, default=[], metavar="[NAME=]PLAN",
        help="separate plan for the prompts of model NAME (repeatable)")  # fmt: skip
    add("--version", action="version", version=TOOL)
    add_flags(add, SessionOptions, dims="size of a symbolic dimension, for all requests")
    add("--export-triton", type=Output(folder=Folder.FILLED), metavar="REPO",
        help="write a model repository for Triton's Python backend instead of serving")  # fmt: skip
    _add_address(parser.add_argument_group("addresses").add_argument)
    _add_batching(parser.add_argument_group("batching of requests").add_argument)
    _add_log(parser.add_argument_group("log on stderr").add_argument)
    _add_limits(parser.add_argument_group("limits").add_argument)
    add = parser.add_argument_group("ranks").add_argument
    add_flags(add, SessionOptions, *_RANK_FLAGS)
    parser.set_defaults(start_timeout_s=_START_TIMEOUT_S)
    return parser


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text[:6]) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got: '{text:.20}'")
    return int(text)


def _add_address(add: Any) -> None:
    add("--host", default=ServerOptions.host, metavar="H",
        help="address (%(default)s: this machine only)")  # fmt: skip
    add("--port", type=_port, default=8000, metavar="P", help="HTTP port, 0: any free port (8000)")
    add("--grpc-port", type=_port, default=ServerOptions.grpc_port, metavar="P",
        help="gRPC port (%(default)s)")  # fmt: skip
    add("--no-grpc", action="store_true", help="serve HTTP only")
    add("--address-file", type=Output(form=FORMS["addresses"]), metavar="FILE",
        help="write the addresses, one per line, to FILE while serving")  # fmt: skip
    add("--api-key-file", type=Input(), metavar="FILE",
        help="answer only clients with a key of FILE, one per line")  # fmt: skip
    add("--api-key", action="append", default=[], metavar="KEY",
        help="a key, visible to other users of this machine (repeatable)")  # fmt: skip


def _add_log(add: Any) -> None:
    add("--log-format", choices=("text", "json"), default="text",
        help="lines for people, or one JSON object per line (text)")  # fmt: skip
    add("--no-access-log", action="store_true", help="log only requests that fail with 5xx")


def _add_batching(add: Any) -> None:
    add("--batch-delay-ms", type=number(0.0), default=ServingOptions.batch_delay_s * 1e3,
        metavar="MS",
        help="time to collect further requests while ranks are idle (%(default)g)")  # fmt: skip
    add("--max-batch", type=integer(1), metavar="N",
        help="most samples per run for a symbolic batch dimension (8)")  # fmt: skip
    add("--pooling", choices=POOLINGS, default=ServingOptions.pooling,
        help="embeddings: mean of the tokens, or first token (%(default)s)")  # fmt: skip
    add("--no-batching", action="store_true", help="run each request separately")


def _add_limits(add: Any) -> None:
    add("--queue", type=integer(1), default=ServingOptions.queue, metavar="N",
        help="most queued requests (%(default)s)")  # fmt: skip
    add("--max-prompts", type=integer(1), default=TextLimits.max_prompts, metavar="N",
        help="most texts per request: prompts times n (%(default)s)")  # fmt: skip
    add("--slots", type=integer(1), default=TextLimits.slots, metavar="N",
        help="most texts that run together (%(default)s)")  # fmt: skip
    add("--context", type=integer(2), metavar="N",
        help="most tokens of a text (default: the model's limit)")  # fmt: skip
    add("--step-tokens", type=integer(1), default=TextLimits.step_tokens, metavar="N",
        help="most tokens of prompts between two steps of texts (%(default)s)")  # fmt: skip
    add("--speculate", type=integer(0), default=TextLimits.speculate, metavar="N",
        help="most tokens that are proposed for a text in a step (%(default)s)")  # fmt: skip
    add("--timeout", type=SECONDS, default=ServingOptions.timeout_s, metavar="S",
        help="most time to answer a request (%(default)g)")  # fmt: skip
    add_flags(add, SessionOptions, **_LIMITS)
    add("--max-body", type=integer(1), default=64, metavar="MIB", help="largest request (64)")
    add("--max-bodies", type=integer(1), metavar="MIB",
        help="all requests in progress (4 times --max-body)")  # fmt: skip
    add("--grace", type=number(0.0), default=ServerOptions.grace_s, metavar="S",
        help="time to finish requests at shutdown (%(default)g)")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
