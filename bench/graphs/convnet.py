"""Parts of convolutional networks: feature maps with channels and size, and layers on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphs.builder import Builder

__all__ = ["Map", "Network", "classify", "conv", "embed_patches", "image", "join", "pool"]


@dataclass(frozen=True)
class Map:
    """A tensor [batch, channels, size, size]."""

    value: str
    channels: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Network:
    """Sizes of all networks: images [batch, 3, image, image]; ``shrink`` divides all widths."""

    batch: int = 128
    image: int = 224
    classes: int = 1000
    shrink: int = 1
    dtype: str = "float32"


def image(g: Builder, net: Network) -> Map:
    """Add the input."""
    return Map(g.input("image", net.dtype, net.batch, 3, net.image, net.image), 3, net.image)


def conv(
    g: Builder,
    x: Map,
    channels: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    pad: int | tuple[int, int] = 0,
    *,
    norm: bool = False,
    relu: bool = True,
    name: str = "conv",
) -> Map:
    """Add a convolution, with a bias or followed by a normalisation."""
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    top, left = (pad, pad) if isinstance(pad, int) else pad
    with g.scope(name):
        shape = (channels, x.channels, height, width)
        weights = [g.weight("weight", *shape, fan_in=x.channels * height * width)]
        weights += [] if norm else [g.weight("bias", channels)]
        pads, strides = [top, left, top, left], [stride, stride]
        y = g.op("Conv", x.value, *weights, pads=pads, strides=strides)
        y = _normalise(g, y, channels) if norm else y
        y = g.op("Relu", y) if relu else y
    return Map(y, channels, (x.size + 2 * top - height) // stride + 1)


def _normalise(g: Builder, x: str, channels: int) -> str:
    trained = [g.weight(f"norm.{name}", channels) for name in ("scale", "bias")]
    running = [g.weight(f"norm.{name}", channels, trained=False) for name in ("mean", "variance")]
    return g.op("BatchNormalization", x, *trained, *running, epsilon=1e-5)


def pool(g: Builder, x: Map, kind: str, kernel: int, stride: int, pad: int = 0) -> Map:
    """Add a pooling; ``kind`` is Max or Average."""
    kernels, strides, pads = [kernel] * 2, [stride] * 2, [pad] * 4
    y = g.op(f"{kind}Pool", x.value, kernel_shape=kernels, strides=strides, pads=pads)
    return Map(y, x.channels, (x.size + 2 * pad - kernel) // stride + 1)


def join(g: Builder, maps: Sequence[Map]) -> Map:
    """Concatenate maps of one size along channels."""
    y = g.op("Concat", *(x.value for x in maps), axis=1)
    return Map(y, sum(x.channels for x in maps), maps[0].size)


def classify(g: Builder, x: Map, net: Network, hidden: Sequence[int] = ()) -> None:
    """Add the layers from a feature map to the output, the scores of the classes."""
    y, inputs = g.op("Flatten", x.value), x.channels * x.size**2
    for number, outputs in enumerate([*hidden, net.classes]):
        with g.scope(f"classifier{number}"):
            weight = g.weight("weight", outputs, inputs, fan_in=inputs)
            y = g.op("Gemm", y, weight, g.weight("bias", outputs), transB=1)
            y = g.op("Relu", y) if number < len(hidden) else y
        inputs = outputs
    g.output(y, "scores", net.batch, net.classes)


def embed_patches(g: Builder, x: Map, batch: int, width: int, patch: int) -> str:
    """Return [batch, 1 + patches, width]: a token of its own, then the patches, with positions."""
    x = conv(g, x, width, patch, patch, relu=False, name="patches")
    rows = g.op("Reshape", x.value, g.ints(0, 0, -1))
    rows = g.op("Transpose", rows, perm=[0, 2, 1])
    token = g.weight("token", 1, 1, width, fan_in=width)
    rows = g.op("Concat", g.op("Expand", token, g.ints(batch, 1, 1)), rows, axis=1)
    return g.op("Add", rows, g.weight("positions", 1 + x.size**2, width, fan_in=width))
