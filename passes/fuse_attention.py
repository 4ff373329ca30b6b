"""`fuse-attention`: attention as one operation with a kernel, which keeps no scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NoReturn

from tensoropt.compiler.protos.op_names import NamedBuild, OpNamer
from tensoropt.compiler.protos.types import static_shape
from tensoropt.compiler.sharding.rule.attending import can_block, is_long, mask_value
from tensoropt.compiler.sharding.rule.describe import describe
from tensoropt.compiler.sharding.rule.heads import heads_of
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.training.gradients.attention import attention_in_kernel
from tensoropt.compiler.training.gradients.kernel_attention import Attended, AttentionKernels
from tensoropt.compiler.training.gradients.registry import ForwardOp, Training
from tensoropt.compiler.training.gradients.runtime_attention import multi_head_in_kernel
from tensoropt.dialects import onnx
from tensoropt.dialects.build import Build, element_type, shape_of, sizes_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import attribute, function, made_by, opsets, owner
from tensoropt.dialects.topt.keys import SCORED
from tensoropt.passes.attention_chains import Chain, Mask, factor_of, read_chain, unrepeated
from tensoropt.passes.base import Pass
from tensoropt.passes.numbering import forget_removed
from tensoropt.runtime.support.collectives import DOMAIN

if TYPE_CHECKING:
    from tensoropt.compiler.cost.device import Device

__all__ = ["FuseAttentionPass"]

_SINCE = 13
"""First opset in which Softmax normalises one dimension."""

_VALUES = 3
"""Query, key and value."""

_HEADS, _GROUPED = 4, 5
"""Dimensions of scores by head, and of scores by key head and query head of each."""

_OPERATORS = {
    "onnx.Attention": attention_in_kernel,
    "onnx.com.microsoft.MultiHeadAttention": multi_head_in_kernel,
}
"""Operators with a kernel of ONNX Runtime, and their form with ours."""

_BLOCKED = f"onnx.{onnx.BLOCKED_ATTENTION}"


@dataclass(frozen=True)
class FuseAttentionPass(Pass):
    """Replaces the operations of an attention by one `tensoropt.Attention` where it has a kernel.

    It is a product, scalings of query, key or scores, a limit of scores, masks, a `Softmax` and a
    product, and casts between these; each result has one reader. Keys and values that are repeated
    for several heads of queries are read once. A causal mask becomes an attribute, other masks
    become the bias. Operations of `block-attention` are replaced too. With a `Dropout` after the
    `Softmax` it is one `tensoropt.AttentionWithDropout`, which a training step gives seeds.

    Processors have the kernel in float32. GPUs of `architectures`, comma-separated compute
    capabilities times ten, have it for the forms that all of them take. A training step computes in
    `precision`: values in float32 become float32, float16 or bfloat16 later. The module notes the
    reasons for which attention is kept (`topt.scored`). For `inference`, only long attention is
    replaced, and no gradient is needed; on processors, the operators `Attention` and
    `MultiHeadAttention` are replaced, too.

    Refuses nothing. Linear in the operations, and in those of each mask.
    """

    name: ClassVar[str] = "fuse-attention"
    summary: ClassVar[str] = "Join the operations of each attention for a kernel."

    architectures: str = ""
    precision: str = "float32"
    inference: bool = False

    @classmethod
    def for_inference(cls, device: Device) -> FuseAttentionPass | None:
        """Return the pass for ranks on ``device``, ``None`` if they have no kernel."""
        if not device.has_attention:
            return None
        return cls(",".join(map(str, device.architectures)), inference=True)

    def run(self, module: ir.Module) -> None:
        version, namer, fused = opsets(module).get("", 1), OpNamer(module), False
        trains = not self.inference
        fusion = _Fusion(AttentionKernels(self.precision, self.architectures, trains=trains))
        with module.context, ir.Location.unknown():
            block = function(module).regions[0].blocks[0]
            for op in [view.operation for view in block] if version >= _SINCE else ():
                if op.name == _BLOCKED:
                    fused |= fusion.fuse_blocked(op, NamedBuild(namer, op, version))
                elif op.name in _OPERATORS and self.inference and not self.architectures:
                    fused |= fusion.fuse_operator(
                        op, opsets(module), NamedBuild(namer, op, version)
                    )
                elif op.name == "onnx.Softmax" and (chain := read_chain(op)) is not None:
                    fused |= fusion.fuse(chain, NamedBuild(namer, chain.last, version))
            if fusion.kernels.refused and not self.inference:
                SCORED.set(module.operation.attributes, fusion.kernels.refused)
            if fused:
                onnx.require_domain(module, DOMAIN)
                forget_removed(module)


@dataclass
class _Biases:
    """The bias of each list of masks, built once for all layers that have it."""

    biases: dict[tuple[Mask, ...], ir.Value] = field(default_factory=dict)

    def add(self, make: Build, masks: list[Mask], like: ir.Value) -> ir.Value | None:
        """Return the bias of ``masks``, the last one applied first; ``None`` without masks."""
        if not masks:
            return None
        key = tuple(masks)
        if key not in self.biases:
            bias = None
            for mask in reversed(masks):
                bias = _masked(make, mask, bias, like)
            assert bias is not None
            self.biases[key] = bias
        return self.biases[key]


def _masked(make: Build, mask: Mask, bias: ir.Value | None, like: ir.Value) -> ir.Value:
    """Return a bias, 0 if ``None``, after a mask: it adds terms, or replaces those of hidden keys.

    Scores are so small next to a fill that it replaces them by a sum.
    """
    if mask.fill is None:
        terms = make.cast(mask.value, element_type(like))
        return terms if bias is None else make.add(bias, terms)
    fill = make.scalar(mask.fill, like)
    seen = make.scalar(0.0, like) if bias is None else bias
    return make.where(mask.value, *((fill, seen) if mask.inverted else (seen, fill)))


@dataclass
class _Fusion:
    """Replaces attention that has one of the ``kernels``."""

    kernels: AttentionKernels
    masks: _Biases = field(default_factory=_Biases)

    def fuse(self, chain: Chain, make: NamedBuild) -> bool:
        """Replace the operations of an attention; return whether it has a kernel."""
        rank = len(shape_of(chain.q))
        if rank not in (_HEADS - 1, _HEADS) or any(
            static_shape(x.type) is None or len(shape_of(x)) != rank for x in (chain.k, chain.v)
        ):
            return False
        masks, causal, last = chain.other_masks, chain.causal, chain.last
        if not self.kernels.trains:
            # A dropout in inference draws numbers that no step has seeds for.
            if chain.ratio or not can_block(chain.q, chain.k, chain.v, causal=False):
                return False
            if masks and not all(mask.excludes for mask in chain.masks if mask.causal):
                # Rows without keys have weights for keys that finite terms hide.
                masks, causal = chain.masks, False
        with ir.InsertionPoint(last):
            q, by_query = _unscaled(chain.q)
            k, by_key = _unscaled(chain.k)
            k, by_turned = _unscaled(_turned(make, k))
            v = chain.v
            bias = self.masks.add(make, masks, q)
            key, value = unrepeated(k), unrepeated(v)
            if key is not None and value is not None:
                k, v = key, value
            if rank < _HEADS:  # sequences by head, or with one head
                q, k, v = (make.unsqueeze(x, [1]) for x in (q, k, v))
                outer = bias is not None and len(shape_of(bias)) == rank
                bias = make.unsqueeze(bias, [1]) if bias is not None and outer else bias
            scale = chain.scale * by_query * by_key * by_turned
            attended = Attended(q, k, v, bias, scale, chain.softcap, causal, chain.ratio)
            if not self.kernels.fit(attended, chain.softmax):
                return False
            y = attended.build(make)
            y = make.squeeze(y, [1]) if rank < _HEADS else y
            y = make.cast(y, element_type(last.results[0]))
        last.results[0].replace_all_uses_with(y)
        for op in (last, *chain.others):
            op.erase()
        return True

    def fuse_operator(self, op: ir.Operation, versions: dict[str, int], make: NamedBuild) -> bool:
        """Replace a long attention that is an operator; return whether it has a kernel."""
        info = describe(op, versions)
        if not _is_long_operator(info):
            return False
        training = Training(_no_step, _no_step, kernels=self.kernels)
        with ir.InsertionPoint(op):
            forward = ForwardOp(op, info, list(op.operands), make, training)
            results = _OPERATORS[op.name](forward)
        if results is None:
            return False
        for before, after in zip(op.results, results, strict=True):
            if after is not None:
                before.replace_all_uses_with(after)
        op.erase()
        return True

    def fuse_blocked(self, op: ir.Operation, make: NamedBuild) -> bool:
        """Replace an attention in blocks; return whether it has a kernel."""
        (q, scale), k, v, *rest = _unscaled(op.operands[0]), *list(op.operands)[1:]
        rank = len(shape_of(q))
        mask = rest[0] if rest else None
        if rank not in (_HEADS, _GROUPED) or (rank == _GROUPED and mask is not None):
            return False
        with ir.InsertionPoint(op):
            if rank == _GROUPED:
                if sizes_of(k)[2] != 1 or sizes_of(v)[2] != 1:
                    return False
                batch, groups, each, rows, size = sizes_of(q)
                q = make.reshape(q, [batch, groups * each, rows, size])
                k, v = (make.squeeze(x, [2]) for x in (k, v))
            k = _turned(make, k)
            terms = list[Mask]()
            if mask is not None:
                is_bool = element_type(mask) == ir.IntegerType.get_signless(1)
                # Rows without keys are 0 in training, in inference the mean of the values.
                hidden = -float("inf") if self.kernels.trains else mask_value(q)
                terms = [Mask(mask, hidden if is_bool else None)]
            bias, causal = self.masks.add(make, terms, q), bool(attribute(op, "causal", 0))
            attended = Attended(q, k, v, bias, scale, causal=causal)
            if not self.kernels.fit(attended, op):
                return False
            y = make.shaped(attended.build(make), sizes_of(op.results[0]))
        op.results[0].replace_all_uses_with(y)
        op.erase()
        return True


def _no_step(*_: object) -> NoReturn:
    raise AssertionError("inference has no seed and no buffers")


def _is_long_operator(info: OpInfo) -> bool:
    """Return whether an attention operator has known sizes and is long."""
    present = [operand for operand in info.operands if operand is not None]
    if len(present) < _VALUES or any(None in operand.shape for operand in present):
        return False
    heads, (query, key, value) = heads_of(info), map(info.shape, range(_VALUES))
    rows, keys = query[-2] or 0, key[-2] or 0
    width = (value[-1] or 0) // (1 if len(value) == _HEADS else heads.shared)
    size = (query[-1] or 0) // (1 if len(query) == _HEADS else heads.queries)
    return is_long(rows, keys, size + width, causal=False)


def _unscaled(value: ir.Value) -> tuple[ir.Value, float]:
    """Return the value that literals scale, and their product."""
    factor = 1.0
    while (op := owner(value)) is not None and (by := factor_of(op)) is not None:
        if shape_of(by[1]) != shape_of(value):
            break
        factor, value = factor * by[0], by[1]
    return value, factor


def _turned(make: Build, k: ir.Value) -> ir.Value:
    """Return keys `... t d` from `... d t`; a transposition is taken back if there is one."""
    rank, turn = len(shape_of(k)), made_by(k, "Transpose")
    swapped = [*range(rank - 2), rank - 1, rank - 2]
    if turn is None:
        return _turned_flat(make, k) or make.transpose(k, swapped)
    before = attribute(turn, "perm") or list(reversed(range(rank)))
    return make.transpose(turn.operands[0], [before[dim] for dim in swapped])


def _turned_flat(make: Build, k: ir.Value) -> ir.Value | None:
    """Return keys `b h t d` of keys that were transposed as `(b h) t d`, else ``None``."""
    split = made_by(k, "Reshape")
    turn = None if split is None else made_by(split.operands[0], "Transpose")
    if turn is None or attribute(turn, "perm") != [0, 2, 1] or len(shape_of(k)) != _HEADS:
        return None
    flat, (batch, heads, size, keys) = turn.operands[0], sizes_of(k)
    if sizes_of(flat) != [batch * heads, keys, size]:
        return None
    merge = made_by(flat, "Reshape")
    return make.shaped(flat if merge is None else merge.operands[0], [batch, heads, keys, size])
