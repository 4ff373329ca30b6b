"""`graphs.resnet` in PyTorch."""

from __future__ import annotations

import torch
from graphs.resnet import ResNet
from torch import nn
from torch.nn import functional

from torch_models.residual import NormedConv
from torch_models.weights import add_numbered

__all__ = ["TorchResNet"]

_DEPTHS = {14: (1, 1, 1, 1), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


class _Bottleneck(nn.Module):
    def __init__(self, inputs: int, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = NormedConv(inputs, inner, 1)
        self.conv2 = NormedConv(inner, inner, 3, stride)
        self.conv3 = NormedConv(inner, outer, 1)
        changes = inputs != outer or stride > 1
        self.shortcut = NormedConv(inputs, outer, 1, stride) if changes else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.conv2(functional.relu(self.conv1(x))))
        return functional.relu(self.conv3(y) + self.shortcut(x))


class TorchResNet(nn.Module):
    """A network from images to the scores of classes."""

    def __init__(self, sizes: ResNet) -> None:
        super().__init__()
        self.stem = NormedConv(3, 64 // sizes.shrink, 7, 2)
        inputs = 64 // sizes.shrink
        blocks: list[nn.Module] = []
        for stage, depth in enumerate(_DEPTHS[sizes.layers]):
            inner = 64 * 2**stage * sizes.widen // sizes.shrink
            outer = 256 * 2**stage // sizes.shrink
            parts: list[nn.Module] = []
            for number in range(depth):
                stride = 2 if stage and not number else 1
                parts.append(_Bottleneck(inputs, inner, outer, stride))
                inputs = outer
            blocks += add_numbered(self, f"stage{stage}/block", parts)
        self.blocks = tuple(blocks)
        self.classifier0 = nn.Linear(inputs, sizes.classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.stem(image)), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return self.classifier0(x.mean((2, 3)))
