"""Residual networks for small images (He et al., arXiv 1512.03385, section 4.2).

There are three stages of basic blocks, each of half the size and twice the channels; ``blocks`` 3
with ``width`` 16 is ResNet-20, of 0.27 M parameters. As in the networks for large images, the stem
may end in a pooling (``pooled``), and shortcuts that change the shape are convolutions.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.convnet import Map, Network, classify, conv, image, pool
from graphs.layers import dropped

__all__ = ["Residual"]

_STAGES = 3


@dataclass(frozen=True, kw_only=True)
class Residual(Network):
    """Sizes of the network: ``blocks`` per stage, and ``width``, the channels of the first stage.

    ``dropout`` is the dropped part of the features before the classifier.
    """

    image: int = 32
    classes: int = 10
    blocks: int = 3
    width: int = 16
    pooled: bool = False
    dropout: float = 0.0

    def build(self, name: str) -> Builder:
        g = Builder(name, self.dtype)
        x = conv(g, image(g, self), self.width, 3, 1, 1, norm=True, name="stem")
        x = pool(g, x, "Max", 3, 2, 1) if self.pooled else x
        for stage in range(_STAGES):
            for number in range(self.blocks):
                with g.scope(f"stage{stage}"), g.scope(f"block{number}"):
                    x = self._block(g, x, self.width * 2**stage)
        features = dropped(g, g.op("GlobalAveragePool", x.value), self.dropout)
        classify(g, Map(features, x.channels, 1), self)
        return g

    def _block(self, g: Builder, x: Map, width: int) -> Map:
        stride = 1 if x.channels == width else 2
        y = conv(g, x, width, 3, stride, 1, norm=True, name="conv1")
        y = conv(g, y, width, 3, 1, 1, norm=True, relu=False, name="conv2")
        if stride > 1:
            x = conv(g, x, width, 1, stride, norm=True, relu=False, name="shortcut")
        return Map(g.op("Relu", g.op("Add", y.value, x.value)), width, y.size)
