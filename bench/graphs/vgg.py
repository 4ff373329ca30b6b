"""VGG-16 (Simonyan and Zisserman, arXiv 1409.1556, configuration D): 138.4 M parameters."""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.convnet import Network, classify, conv, image, pool

__all__ = ["Vgg"]

_BLOCKS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


@dataclass(frozen=True, kw_only=True)
class Vgg(Network):
    def build(self, name: str) -> Builder:
        g, k = Builder(name, self.dtype), self.shrink
        x = image(g, self)
        for block, (channels, convs) in enumerate(_BLOCKS):
            with g.scope(f"block{block}"):
                for number in range(convs):
                    x = conv(g, x, channels // k, 3, 1, 1, name=f"conv{number}")
                x = pool(g, x, "Max", 2, 2)
        classify(g, x, self, [4096 // k, 4096 // k])
        return g
