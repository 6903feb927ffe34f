"""Blocks: transformer layers in plain torch, with random weights, dense or with experts.

Products that read the same activations are one product, as serving engines merge them: q, k and v; gate and up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

_EPSILON: Final = 1e-5
_BASE: Final = 500_000.0
#: Standard deviation of the weights.
_SPREAD: Final = 0.02


@dataclass(frozen=True, slots=True)
class Sizes:
    """Extents of a block.

    Attributes:
        heads, kv_heads: of queries, and of keys and values.
        inner: width between the two products of a feed-forward layer, or of one expert.
        experts, chosen: experts, and how many each token takes; 0 for a dense block.
    """

    hidden: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    experts: int = 0
    chosen: int = 0


@dataclass(frozen=True, slots=True)
class Phase:
    """What runs through a block at once.

    Attributes:
        batch, length: sequences, and new tokens of each; one token is decoding.
        context: tokens that a decoded one attends to, itself included.
    """

    batch: int
    length: int
    context: int = 0

    @property
    def name(self) -> str:
        """As tables name it."""
        return f"decode {self.batch}" if self.length == 1 else f"prefill {self.length}"

    @property
    def tokens(self) -> int:
        """Rows of the products."""
        return self.batch * self.length


BLOCKS: Final = {
    "llama3-8b": Sizes(4096, 32, 8, 128, 14336),
    "qwen3-30b-a3b": Sizes(2048, 32, 4, 128, 768, 128, 8),
}
#: Blocks with the same structure that a CPU computes in no time.
TINY: Final = {
    "llama3-8b": Sizes(64, 4, 2, 16, 128),
    "qwen3-30b-a3b": Sizes(96, 4, 2, 16, 32, 8, 2),
}


class Block(nn.Module):  # type: ignore[misc]
    """Attention and feed-forward, each behind a norm and around a residual."""

    def __init__(self, sizes: Sizes, device: str, dtype: torch.dtype = torch.bfloat16, seed: int = 7) -> None:
        super().__init__()
        self.sizes = sizes
        random = torch.Generator(device).manual_seed(seed)

        def weight(*shape: int) -> nn.Parameter:
            made = torch.empty(*shape, device=device, dtype=dtype).normal_(0.0, _SPREAD, generator=random)
            return nn.Parameter(made, requires_grad=False)

        attended = sizes.heads * sizes.head
        self.qkv = weight(attended + 2 * sizes.kv_heads * sizes.head, sizes.hidden)
        self.o = weight(sizes.hidden, attended)
        experts = (sizes.experts,) if sizes.experts else ()
        self.gate_up = weight(*experts, 2 * sizes.inner, sizes.hidden)
        self.down = weight(*experts, sizes.hidden, sizes.inner)
        self.router = weight(sizes.experts, sizes.hidden) if sizes.experts else None

    def forward(self, x: Tensor, given: Inputs) -> Tensor:
        """The layer of [batch, length, hidden]."""
        x = x + self._attention(_normed(x), given)
        return x + self._feed_forward(_normed(x), given)

    def _attention(self, x: Tensor, given: Inputs) -> Tensor:
        sizes = self.sizes
        parts = functional.linear(x, self.qkv).view(*x.shape[:2], -1, sizes.head).transpose(1, 2)
        q, k, v = parts.split((sizes.heads, sizes.kv_heads, sizes.kv_heads), dim=1)
        q, k = _rotated(q, given), _rotated(k, given)
        if given.keys is not None and given.values is not None:
            given.keys[:, :, -1:].copy_(k)
            given.values[:, :, -1:].copy_(v)
            k, v = given.keys, given.values
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=given.keys is None, enable_gqa=True)
        return functional.linear(y.transpose(1, 2).reshape(*x.shape[:2], -1), self.o)

    def _feed_forward(self, x: Tensor, given: Inputs) -> Tensor:
        if self.router is None:
            return functional.linear(_gated(functional.linear(x, self.gate_up)), self.down)
        flat = x.view(-1, x.shape[-1])
        scores = functional.linear(flat, self.router).float().softmax(-1).gather(1, given.taken).to(x.dtype)
        routed = flat[given.routes]
        if routed.shape[0] < self.sizes.experts:
            # Few tokens: only the experts that they take.
            of_experts = torch.stack([
                functional.linear(_gated(functional.linear(routed[place], self.gate_up[place])), self.down[place])
                for place in range(routed.shape[0])
            ])  # fmt: skip
        else:
            of_experts = torch.bmm(_gated(torch.bmm(routed, self.gate_up.mT)), self.down.mT)
        back = of_experts.view(-1, x.shape[-1])[given.back]
        return (back * scores[..., None]).sum(1).view(x.shape)


#: A block's layer of x, as the class computes it or compiled.
Step = Callable[["Block", Tensor, "Inputs"], Tensor]


@dataclass(frozen=True)
class Layers:
    """Blocks of the same sizes, each with weights of its own and fed with what the one before returned."""

    blocks: Sequence[Block]

    @classmethod
    def of(cls, sizes: Sizes, count: int, device: str) -> Layers:
        """As many blocks with random weights."""
        return cls([Block(sizes, device, seed=7 + place) for place in range(count)])

    @property
    def sizes(self) -> Sizes:
        """Extents of each."""
        return self.blocks[0].sizes

    @property
    def dtype(self) -> torch.dtype:
        """That of weights and activations."""
        return self.blocks[0].qkv.dtype

    def __call__(self, step: Step, x: Tensor, given: Sequence[Inputs]) -> Tensor:
        """The last one's result for [batch, length, hidden]."""
        for block, inputs in zip(self.blocks, given, strict=True):
            x = step(block, x, inputs)
        return x


class Inputs:
    """What a block reads beside its activations in one phase.

    Attributes:
        keys, values: of decoding, [batch, kv heads, context, head]; None in prefill.
        taken: experts of each token. The load is equal, as a trained router's nearly is, and known ahead, so that a
            graph can be captured; the router's scores weight the results.
        routes: tokens of each expert that any token takes, [experts, tokens].
        back: places of a token's results among those of all experts.
    """

    def __init__(self, sizes: Sizes, phase: Phase, device: str, dtype: torch.dtype = torch.bfloat16) -> None:
        decodes = phase.length == 1
        self.keys = self.values = None
        if decodes:
            shape = (phase.batch, sizes.kv_heads, phase.context, sizes.head)
            self.keys, self.values = (torch.randn(shape, device=device).to(dtype) for _ in range(2))
        begin = phase.context - 1 if decodes else 0
        places = torch.arange(begin, begin + phase.length, device=device, dtype=torch.float32)
        rates = _BASE ** (-torch.arange(0, sizes.head, 2, device=device, dtype=torch.float32) / sizes.head)
        angles = torch.outer(places, rates).repeat(1, 2)
        self.cosines, self.sines = angles.cos().to(dtype), angles.sin().to(dtype)
        if sizes.experts:
            pairs = phase.tokens * sizes.chosen
            if pairs > sizes.experts and pairs % sizes.experts:
                raise ValueError(f"{pairs} choices don't spread over {sizes.experts} experts: give another batch")
            taken = torch.arange(pairs) % sizes.experts
            order = taken.argsort(stable=True)
            active = min(pairs, sizes.experts)
            self.taken = taken.view(-1, sizes.chosen).to(device)
            self.routes = (order // sizes.chosen).view(active, -1).to(device)
            self.back = order.argsort().view(-1, sizes.chosen).to(device)


def _normed(x: Tensor) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), eps=_EPSILON)


def _rotated(x: Tensor, given: Inputs) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * given.cosines + torch.cat((-second, first), dim=-1) * given.sines


def _gated(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate) * up
