"""InceptionV3 (Szegedy et al., arXiv 1512.00567), without the auxiliary head: 23.8 M parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphs.builder import Builder
from graphs.convnet import Map, Network, classify, conv, image, join, pool

__all__ = ["Inception"]

Step = tuple[int, int | tuple[int, int]]
"""A convolution that preserves the size: channels and kernel."""

Branch = Callable[[Map], Map]


@dataclass(frozen=True, kw_only=True)
class Inception(Network):
    image: int = 299

    def build(self, name: str) -> Builder:
        g = Builder(name, self.dtype)
        x = self._stem(g, image(g, self))
        for number, channels in enumerate((32, 64, 64)):
            with g.scope(f"mixed5{'bcd'[number]}"):
                x = self._mixed5(g, x, channels)
        with g.scope("mixed6a"):
            x = self._reduce(g, x, [(64, 1), (96, 3), (96, 3)], [(384, 3)])
        for number, channels in enumerate((128, 160, 160, 192)):
            with g.scope(f"mixed6{'bcde'[number]}"):
                x = self._mixed6(g, x, channels)
        with g.scope("mixed7a"):
            long: list[Step] = [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3)]
            x = self._reduce(g, x, long, [(192, 1), (320, 3)])
        for number in range(2):
            with g.scope(f"mixed7{'bc'[number]}"):
                x = self._mixed7(g, x)
        classify(g, Map(g.op("GlobalAveragePool", x.value), x.channels, 1), self)
        return g

    def _conv(
        self, g: Builder, x: Map, step: Step, name: str, stride: int = 1, same: bool = True
    ) -> Map:
        channels, kernel = step
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        pad = (height // 2, width // 2) if same else 0
        return conv(g, x, channels // self.shrink, kernel, stride, pad, norm=True, name=name)

    def _chain(self, g: Builder, x: Map, name: str, *steps: Step) -> Map:
        with g.scope(name):
            for number, step in enumerate(steps):
                x = self._conv(g, x, step, f"conv{number}")
        return x

    def _stem(self, g: Builder, x: Map) -> Map:
        x = self._conv(g, x, (32, 3), "conv1a", 2, same=False)
        x = self._conv(g, x, (32, 3), "conv2a", same=False)
        x = pool(g, self._conv(g, x, (64, 3), "conv2b"), "Max", 3, 2)
        x = self._conv(g, x, (80, 1), "conv3b")
        return pool(g, self._conv(g, x, (192, 3), "conv4a", same=False), "Max", 3, 2)

    def _pooled(self, g: Builder, x: Map, channels: int) -> Map:
        with g.scope("pool"):
            return self._conv(g, pool(g, x, "Average", 3, 1, 1), (channels, 1), "conv")

    def _mixed5(self, g: Builder, x: Map, channels: int) -> Map:
        return join(
            g,
            [
                self._chain(g, x, "one", (64, 1)),
                self._chain(g, x, "five", (48, 1), (64, 5)),
                self._chain(g, x, "double", (64, 1), (96, 3), (96, 3)),
                self._pooled(g, x, channels),
            ],
        )

    def _mixed6(self, g: Builder, x: Map, n: int) -> Map:
        row, column = (1, 7), (7, 1)
        return join(
            g,
            [
                self._chain(g, x, "one", (192, 1)),
                self._chain(g, x, "seven", (n, 1), (n, row), (192, column)),
                self._chain(g, x, "double", (n, 1), (n, column), (n, row), (n, column), (192, row)),
                self._pooled(g, x, 192),
            ],
        )

    def _mixed7(self, g: Builder, x: Map) -> Map:
        three = self._chain(g, x, "three", (384, 1))
        double = self._chain(g, x, "double", (448, 1), (384, 3))
        return join(
            g,
            [
                self._chain(g, x, "one", (320, 1)),
                *self._fork(g, three, "three"),
                *self._fork(g, double, "double"),
                self._pooled(g, x, 192),
            ],
        )

    def _fork(self, g: Builder, x: Map, name: str) -> list[Map]:
        kernels = (("row", (1, 3)), ("column", (3, 1)))
        return [self._chain(g, x, f"{name}_{side}", (384, kernel)) for side, kernel in kernels]

    def _reduce(self, g: Builder, x: Map, *branches: list[Step]) -> Map:
        """Halve the size in every branch, at its last step, and by pooling."""
        maps = []
        for number, steps in enumerate(branches):
            with g.scope(f"branch{number}"):
                y = self._chain(g, x, "conv", *steps[:-1])
                maps.append(self._conv(g, y, steps[-1], "halve", 2, same=False))
        return join(g, [*maps, pool(g, x, "Max", 3, 2)])
