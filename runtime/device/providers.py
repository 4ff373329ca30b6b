"""Selection of a job's provider."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tensoropt.runtime.device.provider import CPU, Provider
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.options import OptionError
from tensoropt.runtime.support.rank_options import RankOptions

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["check_provider", "provider_of"]


def check_provider(options: RankOptions) -> None:
    """Raise `UserError` if this machine cannot run the provider; called before ranks start.

    Prints a note to stderr if stand-ins replace the GPU.
    """
    if options.provider == "cuda":
        from tensoropt.runtime.device.cuda import check_cuda, stand_in

        check_cuda()
        if stand_in() is not None:
            print(f"stand-ins of {stand_in()}: nothing runs on a GPU", file=sys.stderr)
    elif options.share_gpus:
        raise OptionError("{share_gpus}: expected {provider} cuda")
    elif options.cuda_graphs:
        raise OptionError("{cuda_graphs}: expected {provider} cuda")


def provider_of(options: RankOptions, comm: MPI.Comm) -> Provider:
    """Return the provider of this rank; all ranks of ``comm`` call it.

    Raises `UserError` on every rank if one of them fails.
    """
    if options.provider == "cpu":
        return CPU
    from tensoropt.runtime.device.cuda import open_cuda

    provider, error = None, None
    try:
        provider = open_cuda(comm, share_gpus=options.share_gpus)
    except UserError as failure:
        error = str(failure)
    errors = [found for found in comm.allgather(error) if found is not None]
    if provider is None or errors:
        raise UserError(errors[0])
    return provider
