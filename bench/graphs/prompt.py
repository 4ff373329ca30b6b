"""LLaMA that reads a prompt with ONNX Runtime's attention, and returns the caches of its tokens."""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.layers import linear
from graphs.llama import Llama, Tables

__all__ = ["Prompt"]


@dataclass(frozen=True, kw_only=True)
class Prompt(Llama):
    """Attention is GroupQueryAttention with rotary positions, as in exports for serving."""

    def _tables(self, g: Builder) -> Tables:
        return *self._angles(g), ""

    def _attention(self, g: Builder, x: str, tables: Tables) -> str:
        size, layer = self.width // self.heads, x.partition(".")[0]
        with g.scope("attention"):
            widths = {"q": self.width, "k": self.groups * size, "v": self.groups * size}
            read = [linear(g, x, self.width, n, name, bias=False) for name, n in widths.items()]
            last = g.constant([self.sequence - 1] * self.batch, "int32")
            read += ["", "", last, g.constant(self.sequence, "int32"), *tables[:2]]
            attributes = {"num_heads": self.heads, "kv_num_heads": self.groups, "do_rotary": 1}
            domain = {"domain": "com.microsoft"}
            y, *caches = g.ops(3, "GroupQueryAttention", *read, **attributes, **domain)
            for cache, name in zip(caches, ("key", "value"), strict=True):
                shape = self.batch, self.groups, self.sequence, size
                g.output(cache, f"present.{layer}.{name}", *shape)
            return linear(g, y, self.width, self.width, "out", bias=False)
