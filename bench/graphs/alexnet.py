"""AlexNet with one tower, of "One weird trick" (Krizhevsky, arXiv 1404.5997): 61.1 M parameters."""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.convnet import Network, classify, conv, image, pool

__all__ = ["AlexNet"]


@dataclass(frozen=True, kw_only=True)
class AlexNet(Network):
    def build(self, name: str) -> Builder:
        g, k = Builder(name, self.dtype), self.shrink
        x = image(g, self)
        x = pool(g, conv(g, x, 64 // k, 11, 4, 2, name="conv1"), "Max", 3, 2)
        x = pool(g, conv(g, x, 192 // k, 5, 1, 2, name="conv2"), "Max", 3, 2)
        x = conv(g, x, 384 // k, 3, 1, 1, name="conv3")
        x = conv(g, x, 256 // k, 3, 1, 1, name="conv4")
        x = pool(g, conv(g, x, 256 // k, 3, 1, 1, name="conv5"), "Max", 3, 2)
        classify(g, x, self, [4096 // k, 4096 // k])
        return g
