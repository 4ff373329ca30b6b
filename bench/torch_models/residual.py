"""`graphs.residual` in PyTorch."""

from __future__ import annotations

import torch
from graphs.residual import Residual
from torch import nn
from torch.nn import functional

__all__ = ["NormedConv", "TorchResidual"]


class NormedConv(nn.Conv2d):
    """A convolution followed by a normalisation."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(super().forward(x))


class _Block(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        stride = 1 if inputs == width else 2
        self.conv1 = NormedConv(inputs, width, 3, stride)
        self.conv2 = NormedConv(width, width, 3)
        self.shortcut = NormedConv(inputs, width, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv2(functional.relu(self.conv1(x)))
        return functional.relu(y + self.shortcut(x))


class _Stage(nn.Module):
    def __init__(self, inputs: int, width: int, blocks: int) -> None:
        super().__init__()
        for number in range(blocks):
            self.add_module(f"block{number}", _Block(width if number else inputs, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.children():
            x = block(x)
        return x


class TorchResidual(nn.Module):
    """A network from images to the scores of classes."""

    def __init__(self, sizes: Residual) -> None:
        super().__init__()
        width, blocks = sizes.width, sizes.blocks
        self.stem = NormedConv(3, width, 3)
        self.pool = nn.MaxPool2d(3, 2, 1) if sizes.pooled else nn.Identity()
        self.stage0 = _Stage(width, width, blocks)
        self.stage1 = _Stage(width, 2 * width, blocks)
        self.stage2 = _Stage(2 * width, 4 * width, blocks)
        self.classifier0 = nn.Linear(4 * width, sizes.classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.pool(functional.relu(self.stem(image)))
        x = self.stage2(self.stage1(self.stage0(x)))
        return self.classifier0(x.mean((2, 3)))
