"""Training jobs that change their devices while they run: `tensoropt-job`, and `Client`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensoropt.elastic.api.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    """Import the client on first access: most modules of this package do not need it."""
    if name != "Client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tensoropt.elastic.api.client import Client

    return Client
