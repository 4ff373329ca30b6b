"""The vision transformer (Dosovitskiy et al., arXiv 2010.11929, table 1): base, 86 M parameters.

The class is computed from an additional first token.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.convnet import Map, Network, classify, embed_patches, image
from graphs.layers import encoder_layer, layer_norm

__all__ = ["Vit"]


@dataclass(frozen=True, kw_only=True)
class Vit(Network):
    """Sizes of the model; ``patch`` is the height and width of the image part of one token."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    patch: int = 16

    def build(self, name: str) -> Builder:
        g = Builder(name, self.dtype)
        x = embed_patches(g, image(g, self), self.batch, self.width, self.patch)
        for number in range(self.layers):
            with g.scope(f"layer{number}"):
                x = encoder_layer(g, x, self.width, self.heads)
        x = layer_norm(g, x, self.width, "norm")
        first = g.op("Gather", x, g.constant(0, "int64"), axis=1, name="first")
        classify(g, Map(first, self.width, 1), self)
        return g
