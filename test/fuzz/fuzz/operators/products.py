"""Matrix products and their kin."""

from __future__ import annotations

from fuzz.builder import Builder, UnsuitableError, Value
from fuzz.operators.registry import maker

EQUATIONS = ("bij,bjk->bik", "ij,jk->ik", "ij,kj->ki", "bi,bi->b", "i,j->ij", "ij->ji", "ii->i",
             "bij->b", "...ij,...jk->...ik", "bhqd,bhkd->bhqk", "ij,ij->", "abc,cd->abd",
             "bij,bjk", "i...,i...->...", "ij,j,jk->ik", "aib,bj->jai", "iij->j")  # fmt: skip


def _times(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return ``x`` and what it can be multiplied with, in order."""
    inner = x.shape[-1]
    if not inner:
        raise UnsuitableError("a sum of nothing is what the memory held before")
    if b.flip(0.3):
        return x, b.pick(lambda v: v.dtype == x.dtype and v.rank > 0 and v.shape[-2:][0] == inner)
    exact = x.bits is not None
    if b.flip(0.15):
        return x, b.weight((inner,), x.dtype, exact)
    if b.flip(0.2) and x.rank > 1:
        return b.weight((b.size(), x.shape[-2]), x.dtype, exact), x
    batch = tuple(1 if b.flip(0.3) else n for n in x.shape[:-2]) if b.flip(0.3) else ()
    return x, b.weight((*batch, inner, b.size()), x.dtype, exact)


@maker(5.0)
def matmul(b: Builder) -> None:
    b.add("MatMul", *_times(b, b.float(least=1)), exact="linear")


@maker(0.5)
def matmul_of_integers(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype in ("int32", "int64") and v.rank > 0)
    b.add("MatMul", *_times(b, x))


@maker(2.5)
def gemm(b: Builder) -> None:
    x = b.float(rank=2)
    over = b.integer(0, 1)
    inner, rows, columns = x.shape[1 - over], x.shape[over], b.size()
    turned = b.integer(0, 1)
    exact = x.bits is not None
    w = b.weight((columns, inner) if turned else (inner, columns), x.dtype, exact)
    shape = b.choose(((columns,), (rows, columns), (1, columns), (rows, 1), (), None))
    c = None if shape is None else b.weight(shape, x.dtype, exact)
    alpha, beta = (b.choose((None, 0.5, 2.0)) for _ in range(2))
    held = {"transA": over or None, "transB": turned or None, "alpha": alpha, "beta": beta}
    b.add("Gemm", x, w, *([] if c is None else [c]), exact="linear", **held)


@maker(2.0)
def einsum(b: Builder) -> None:
    equation = b.choose(EQUATIONS)
    sizes: dict[str, int] = {}
    terms = equation.split("->")[0].split(",")
    operands = [_term(b, term, sizes) for term in terms]
    spaced = equation.replace(",", " , ") if b.flip(0.2) else equation
    b.add("Einsum", *operands, equation=spaced, exact="linear")


def _term(b: Builder, term: str, sizes: dict[str, int]) -> Value:
    letters = term.replace("...", "." * b.integer(0, 1))
    wanted = [sizes.get(letter) for letter in letters]
    found = [v for v in b.values if v.dtype == "float32" and _suits(v, letters, wanted)]
    if found and b.flip(0.8):
        value = b.choose(found)
        sizes.update(zip(letters, value.shape, strict=True))
        return value
    for letter in letters:
        sizes.setdefault(letter, b.size())
    return b.weight([sizes[letter] for letter in letters])


def _suits(value: Value, letters: str, wanted: list[int | None]) -> bool:
    if value.rank != len(letters):
        return False
    fits = all(want in (None, n) for want, n in zip(wanted, value.shape, strict=True))
    pairs = set(zip(letters, value.shape, strict=True))
    return fits and len(pairs) == len(set(letters))


@maker(0.4)
def determinant(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype == "float32" and v.rank > 1 and v.shape[-1] == v.shape[-2])
    if x.shape[-1] > 4:
        raise UnsuitableError("too large a number")
    b.add("Det", x)
