"""Networks that read sequences of turns; only who has torch imports this."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

__all__ = ["reader"]


def reader(
    kind: Literal["gru", "transformer"], inputs: int, width: int, generator: torch.Generator
) -> nn.Module:
    """A module from sequences [n, t, inputs] and lengths [n] to [n, width], 0 for an empty one."""
    module: nn.Module = _Gru(inputs, width) if kind == "gru" else _Transformer(inputs, width)
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.orthogonal_(parameter, generator=generator)
        else:
            nn.init.zeros_(parameter)
    for layer in module.modules():
        if isinstance(layer, nn.LayerNorm):
            nn.init.ones_(layer.weight)
    return module


class _Gru(nn.Module):
    """The state of a recurrent network after the last turn (Cho et al. 2014)."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.cells = nn.GRU(inputs, width, batch_first=True)

    def forward(self, turns: Tensor, lengths: Tensor) -> Tensor:
        if not turns.shape[1]:
            return turns.new_zeros(len(turns), self.cells.hidden_size)
        states, _ = self.cells(turns)
        last = states[torch.arange(len(turns)), (lengths - 1).clamp(min=0)]
        return last * (lengths > 0).unsqueeze(1)


class _Transformer(nn.Module):
    """One layer of attention over all turns, read off at the last one (Vaswani et al. 2017).

    Places are told by a turn's distance, which is among its numbers.
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.enter = nn.Linear(inputs, width)
        self.layer = nn.TransformerEncoderLayer(
            width, 2, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.width = width

    def forward(self, turns: Tensor, lengths: Tensor) -> Tensor:
        if not turns.shape[1]:
            return turns.new_zeros(len(turns), self.width)
        beyond = torch.arange(turns.shape[1]) >= lengths.clamp(min=1).unsqueeze(1)
        states = self.layer(self.enter(turns), src_key_padding_mask=beyond)
        last = states[torch.arange(len(turns)), (lengths - 1).clamp(min=0)]
        return last * (lengths > 0).unsqueeze(1)
