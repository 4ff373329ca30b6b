"""Opening of plans as models that are ready to answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tensoropt.runtime.plan.plan import Plan, settle_dims
from tensoropt.runtime.pool.session import Session
from tensoropt.runtime.support.errors import UserError, did_you_mean
from tensoropt.runtime.support.rank_options import GivenSizes, SessionOptions
from tensoropt.runtime.text.session import TextSession
from tensoropt.serving.encoder import find_encoder
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.model import Model, specs_of
from tensoropt.serving.options import ServingOptions, TextLimits
from tensoropt.serving.text_model import TextModel

__all__ = ["Opener", "check_sizes", "open_models", "open_texts", "restrict_dims", "split_plans"]


def check_sizes(
    plans: Sequence[Plan], dims: Mapping[str, GivenSizes], prefills: Sequence[Plan] = ()
) -> None:
    """Raise `UserError` for a name in ``dims`` that no plan has, or a size that a plan excludes.

    Plans of ``prefills`` have other sizes than the plans that they read prompts for.
    """
    every = [*plans, *prefills]
    tensors = [tensor for plan in every for tensor in plan.inputs]
    known = {name for plan in every for name in plan.select_dims(dims)}
    settle_dims({name: dims[name] for name in dims if name not in known}, tensors, {})
    for plan in plans:
        plan.settle(plan.select_dims(dims))


def restrict_dims(plan: Plan, options: SessionOptions) -> SessionOptions:
    """Return the session options for one plan: ``dims`` reduced to those that it leaves open."""
    return replace(options, dims=plan.settle(plan.select_dims(options.dims)))


class Opener:
    """Opens the plans of a server, and opens plans again that were replaced in their folders.

    ``prefills`` are plans that read the prompts of decoders, by the decoder's name.
    """

    def __init__(
        self,
        plans: Mapping[str, Path],
        prefills: Mapping[str, Path],
        session_options: SessionOptions,
        options: ServingOptions,
        limits: TextLimits,
        metrics: Metrics,
    ) -> None:
        self._plans, self._prefills, self._session_options = plans, prefills, session_options
        self._options, self._limits, self._metrics = options, limits, metrics
        every, others = ([*map(Plan.load, each.values())] for each in (plans, prefills))
        check_sizes(every, session_options.dims, others)
        self._digests = {name: self._find_digests(name) for name in plans}
        self._decoders = split_plans(plans, prefills)[1].keys()

    def open(self) -> tuple[dict[str, Model], dict[str, TextModel]]:
        """Start the ranks of all plans; return the tensor models and the text models.

        Raises `TensoroptError`.
        """
        return self._open(self._plans, self._prefills)

    def reopen(self, name: str) -> Model | TextModel | None:
        """Return a model of the new plan in the folder of ``name``, or None if it is unchanged.

        Raises `TensoroptError`.
        """
        digests = self._find_digests(name)
        if digests == self._digests[name]:
            return None
        plans = {name: self._plans[name]}
        prefills = {name: path for name, path in self._prefills.items() if name in plans}
        is_decoder = bool(split_plans(plans, {})[1])
        if is_decoder != (name in self._decoders):
            kinds = "a plan with caches", "one without"
            expected, got = kinds if name in self._decoders else kinds[::-1]
            raise UserError(f"{self._plans[name]}: expected {expected} as before, got: {got}")
        models, texts = self._open(plans, prefills)
        self._digests[name] = digests
        return texts[name] if is_decoder else models[name]

    def _open(
        self, plans: Mapping[str, Path], prefills: Mapping[str, Path]
    ) -> tuple[dict[str, Model], dict[str, TextModel]]:
        tensors, decoders = split_plans(plans, prefills)
        session = self._session_options
        models = open_models(tensors, session, self._options, self._metrics)
        return models, open_texts(decoders, prefills, session, self._limits, self._metrics)

    def _find_digests(self, name: str) -> list[str]:
        folders = [plans[name] for plans in (self._plans, self._prefills) if name in plans]
        return [Plan.load_description(folder).sha256 for folder in folders]


def split_plans(
    plans: Mapping[str, Path], prefills: Mapping[str, Path]
) -> tuple[dict[str, Path], dict[str, Path]]:
    """Return the plans of tensor models, and the plans of decoders, which continue texts.

    Raises `UserError` for a plan that cannot be read, and for a prefill without a decoder.
    """
    decoders = {name for name, path in plans.items() if "caches" in Plan.load(path).document}
    for name in prefills.keys() - decoders:
        near = did_you_mean(name, decoders)
        raise UserError(f"--prefill {name}={prefills[name]}: no such decoder is served{near}")
    texts = {name: path for name, path in plans.items() if name in decoders}
    return {name: path for name, path in plans.items() if name not in decoders}, texts


def open_texts(
    plans: Mapping[str, Path],
    prefills: Mapping[str, Path],
    session_options: SessionOptions,
    limits: TextLimits,
    metrics: Metrics,
) -> dict[str, TextModel]:
    """Start the ranks of each decoder's plan, and return its text model by name.

    ``prefills`` are plans that read the prompts of some decoders. Raises `UserError`, after ending
    all ranks.
    """
    own = replace(session_options, cuda_graphs=False)
    sessions: dict[str, TextSession] = {}
    try:
        for name, folder in plans.items():
            sessions[name] = TextSession(
                folder,
                prefill=prefills.get(name),
                slots=limits.slots,
                context=limits.context,
                step_tokens=limits.step_tokens,
                speculate=limits.speculate,
                grammars=True,
                **vars(restrict_dims(Plan.load(folder), own)),
            )
    except BaseException:
        for session in sessions.values():
            session.close()
        raise
    return {name: TextModel(name, session, limits, metrics) for name, session in sessions.items()}


def open_models(
    plans: Mapping[str, Path],
    session_options: SessionOptions,
    options: ServingOptions,
    metrics: Metrics,
) -> dict[str, Model]:
    """Start the ranks of each plan, and return its model by name.

    Raises `UserError`, after ending all ranks.
    """
    models: dict[str, Model] = {}
    sessions: list[Session] = []
    try:
        for name, folder in plans.items():
            models[name] = _open_model(name, folder, session_options, options, metrics, sessions)
    except BaseException:
        for session in sessions:
            session.close()
        raise
    return models


def _open_model(
    name: str,
    folder: Path,
    session_options: SessionOptions,
    options: ServingOptions,
    metrics: Metrics,
    sessions: list[Session],
) -> Model:
    plan = Plan.load(folder)
    own = restrict_dims(plan, session_options)
    dims = plan.settle(own.dims)
    inputs, outputs = specs_of(plan.run_inputs, dims), specs_of(plan.run_outputs, dims)
    sessions.append(Session(folder, **vars(own)))
    encoder = find_encoder(plan, inputs, outputs, options.pooling, options.context)
    return Model(name, inputs, outputs, sessions[-1], options, metrics, encoder)
