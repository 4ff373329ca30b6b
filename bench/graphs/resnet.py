"""Residual networks of bottlenecks (He et al., arXiv 1512.03385), optionally wide.

ResNet-152 has 60.2 M parameters. WRN-50-2 (Zagoruyko and Komodakis, arXiv 1605.07146, section 4.4)
doubles the inner width of the bottlenecks: 68.9 M; ``widen`` is any factor. The stride is in the
3x3 convolution.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.convnet import Map, Network, classify, conv, image, pool

__all__ = ["ResNet"]


@dataclass(frozen=True, kw_only=True)
class ResNet(Network):
    """Sizes of the network; ``layers`` is 50, 101 or 152, or 14 with one bottleneck per stage."""

    layers: int = 152
    widen: int = 1

    def build(self, name: str) -> Builder:
        depths = {14: (1, 1, 1, 1), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
        g = Builder(name, self.dtype)
        x = conv(g, image(g, self), 64 // self.shrink, 7, 2, 3, norm=True, name="stem")
        x = pool(g, x, "Max", 3, 2, 1)
        for stage, depth in enumerate(depths[self.layers]):
            for number in range(depth):
                with g.scope(f"stage{stage}/block{number}"):
                    x = self._bottleneck(g, x, 64 * 2**stage, 2 if stage and not number else 1)
        classify(g, Map(g.op("GlobalAveragePool", x.value), x.channels, 1), self)
        return g

    def _bottleneck(self, g: Builder, x: Map, width: int, stride: int) -> Map:
        inner, outer = width * self.widen // self.shrink, 4 * width // self.shrink
        y = conv(g, x, inner, 1, norm=True, name="conv1")
        y = conv(g, y, inner, 3, stride, 1, norm=True, name="conv2")
        y = conv(g, y, outer, 1, norm=True, relu=False, name="conv3")
        if x.channels != outer or stride > 1:
            x = conv(g, x, outer, 1, stride, norm=True, relu=False, name="shortcut")
        return Map(g.op("Relu", g.op("Add", y.value, x.value)), outer, y.size)
