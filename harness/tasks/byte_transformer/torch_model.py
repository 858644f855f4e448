"""The transformer in PyTorch, in one dtype; norms, softmax and loss are in float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from harness.tasks.byte_transformer.data import BYTES, Shape
from lockstep.interface import Array

Product = Callable[[Tensor, Tensor], Tensor]
"""A matrix product: ``torch.matmul``, or one with another rounding."""

CHUNK = 64
"""The number of windows that are measured in one batch."""


class Transformer(torch.nn.Module):
    """A causal transformer without biases that predicts the next byte.

    Args:
        weights: the first weights, as ``data.first_weights`` returns them.
        dtype: the dtype of weights and activations.
        product: the matrix product, also of the attention.
    """

    def __init__(
        self,
        shape: Shape,
        weights: Mapping[str, Array],
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        product: Product = torch.matmul,
    ) -> None:
        super().__init__()
        self.shape, self.dtype, self.product = shape, dtype, product
        self.names = list(weights)
        self.weights = torch.nn.ParameterList(
            torch.nn.Parameter(torch.tensor(value, device=device, dtype=dtype))
            for value in weights.values()
        )
        square = torch.ones(shape.context, shape.context, device=device)
        self.later = square.triu(1).bool()

    def forward(self, seen: Tensor) -> Tensor:
        """Return logits [batch, context, 256], float32, of bytes [batch, context]."""
        weights = dict(zip(self.names, self.weights, strict=True))
        hidden = functional.embedding(seen, weights["bytes"]) + weights["positions"]
        for k in range(self.shape.layers):
            layer = f"layer {k}"
            hidden = hidden + self.attention(hidden, weights, f"{layer}/attention")
            hidden = hidden + self.mlp(hidden, weights, f"{layer}/mlp")
        hidden = self.norm(hidden, weights["last norm"])
        return self.product(hidden, weights["logits"]).float()

    def attention(
        self, hidden: Tensor, weights: Mapping[str, Tensor], name: str
    ) -> Tensor:
        """Return the output of causal self-attention for each position."""
        batch, context, width = hidden.shape
        hidden = self.norm(hidden, weights[f"{name}/norm"])
        mixed = self.product(hidden, weights[f"{name}/input"])
        heads = mixed.view(batch, context, 3, self.shape.heads, -1).permute(
            2, 0, 3, 1, 4
        )
        query, key, value = heads.unbind()
        scores = self.product(query, key.transpose(-1, -2)).float()
        scores = scores / math.sqrt(width // self.shape.heads)
        shares = scores.masked_fill(self.later, -torch.inf).softmax(-1)
        taken = self.product(shares.to(self.dtype), value)
        joined = taken.transpose(1, 2).reshape(batch, context, width)
        return self.product(joined, weights[f"{name}/output"])

    def mlp(self, hidden: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
        """Return the output of the feed-forward layers for each position."""
        hidden = self.norm(hidden, weights[f"{name}/norm"])
        wide = functional.gelu(self.product(hidden, weights[f"{name}/input"]))
        return self.product(wide, weights[f"{name}/output"])

    def norm(self, hidden: Tensor, gain: Tensor) -> Tensor:
        """Return vectors normalised to mean 0 and deviation 1, times the gain."""
        size = (self.shape.width,)
        return functional.layer_norm(hidden.float(), size, gain.float()).to(self.dtype)

    def loss(self, windows: Tensor) -> Tensor:
        """Return the mean cross-entropy in nats of windows [batch, context + 1]."""
        logits = self(windows[:, :-1])
        return functional.cross_entropy(
            logits.reshape(-1, BYTES), windows[:, 1:].reshape(-1)
        )

    @torch.no_grad()
    def bits_per_byte(self, windows: Tensor) -> float:
        """Return the mean cross-entropy of windows, in bits per predicted byte."""
        parts = windows.split(CHUNK)
        nats = sum(self.loss(part).item() * len(part) for part in parts)
        return nats / len(windows) / math.log(2)
