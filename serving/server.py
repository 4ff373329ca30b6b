"""The life cycle of a server: both protocols on one event loop, until a signal."""

from __future__ import annotations

import asyncio
import math
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
import uvicorn
from fastapi import APIRouter, FastAPI

from tensoropt.runtime.support.errors import UserError, cause_of
from tensoropt.runtime.support.files import replace_private
from tensoropt.runtime.support.http_server import server_config
from tensoropt.serving.http.app import make_app
from tensoropt.serving.http.body import Bodies
from tensoropt.serving.http.connection import Connection
from tensoropt.serving.http.key_check import KeyCheck
from tensoropt.serving.http.request_logging import RequestLogging
from tensoropt.serving.log import LOG
from tensoropt.serving.options import ServerOptions
from tensoropt.serving.reloading import Reloads, Reopen
from tensoropt.serving.rpc.servicer import make_server
from tensoropt.serving.service import Service

__all__ = ["serve"]

_MOST_CONNECTIONS = 4096
_KEEP_ALIVE_S = 75  # longer than usual proxies keep a connection


async def serve(
    service: Service,
    listener: socket.socket,
    options: ServerOptions,
    bodies: Bodies,
    more: Sequence[APIRouter] = (),
    reopen: Reopen = lambda _: None,
) -> None:
    """Serve until SIGTERM or SIGINT, drain the requests in progress, and end all ranks.

    On SIGHUP, ``reopen`` opens the plans that were replaced in their folders.

    A second SIGTERM or SIGINT cancels the requests in progress immediately. ``bodies`` limits HTTP
    requests, and ``more`` adds routes. Raises `UserError` if gRPC cannot listen, or the address
    file cannot be written.
    """
    http = _Http(_config(make_app(service, bodies, more), options))
    try:
        rpc = _Rpc(service, options, bodies)
        name = f"[{options.host}]" if ":" in options.host else options.host
        addresses = [f"http://{name}:{listener.getsockname()[1]}"]
        if rpc.port is not None:
            addresses.append(f"grpc://{name}:{rpc.port}")
        reloads = Reloads(service, reopen, options.grace_s)
        # Outside the task group, which would wrap the error of the address file.
        with _address_file(options.address_file, addresses):
            async with asyncio.TaskGroup() as tasks:
                work = tasks.create_task(reloads.work())
                with _signals({signal.SIGHUP: reloads.ask}):
                    await _serve_until_signal(service, listener, http, rpc, options, addresses)
                work.cancel()
    finally:
        bodies.side.close()
        await asyncio.gather(*(model.close() for model in service.all_models))


async def _serve_until_signal(
    service: Service,
    listener: socket.socket,
    http: _Http,
    rpc: _Rpc,
    options: ServerOptions,
    addresses: Sequence[str],
) -> None:
    ending = asyncio.Event()

    def end() -> None:
        http.force_exit = ending.is_set()  # the second time
        ending.set()

    with _signals({signal.SIGTERM: end, signal.SIGINT: end}):
        await rpc.start()
        serving = asyncio.create_task(http.serve([listener]))
        for model in service.all_models:
            LOG.info("model '%s': %s", model.name, model.describe())
        LOG.info("serving at %s", " and ".join(addresses))
        await ending.wait()
        service.is_ending = True
        http.should_exit = True
        stopping = asyncio.create_task(rpc.stop(options.grace_s))
        await serving
        await rpc.stop(0.0) if http.force_exit else await stopping


class _Http(uvicorn.Server):
    """uvicorn's server without its signal handlers: ours also end gRPC."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(app: FastAPI, options: ServerOptions) -> uvicorn.Config:
    return server_config(
        RequestLogging(KeyCheck(app, options.keys)),
        Connection,
        math.ceil(options.grace_s),
        loop="none",
        log_level="warning",
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )


class _Rpc:
    """The gRPC server, or a stand-in that does nothing without a port."""

    def __init__(self, service: Service, options: ServerOptions, bodies: Bodies) -> None:
        self._server: grpc.aio.Server | None = None
        self.port: int | None = None
        if options.grpc_port is not None:
            self._server, self.port = make_server(
                service,
                bodies.most,
                bodies.count,
                bodies.side,
                options.host,
                options.grpc_port,
                options.keys,
            )

    async def start(self) -> None:
        if self._server is not None:
            await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, and cancel calls that do not end within ``grace_s`` seconds."""
        if self._server is not None:
            await self._server.stop(grace_s)


@contextmanager
def _signals(works: Mapping[int, Callable[[], None]]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number, work in works.items():
        loop.add_signal_handler(number, work)
    try:
        yield
    finally:
        for number in works:
            loop.remove_signal_handler(number)


@contextmanager
def _address_file(path: Path | None, addresses: Sequence[str]) -> Iterator[None]:
    """Write the addresses to a file, and remove it at the end."""
    if path is None:
        yield
        return
    try:
        replace_private(path, "".join(f"{address}\n" for address in addresses))
    except OSError as error:
        raise UserError(f"--address-file {path}: {cause_of(error)}") from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
