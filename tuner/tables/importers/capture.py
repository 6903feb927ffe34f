"""Capture: a model without weights runs once on the meta device, and its products become those of a serving engine.

Needs PyTorch and transformers. Engines merge the projections of one module that read the same activations (q, k and v;
gate and up), and cut N of projections that open a block, and K of those that close it, by the tensor-parallel degree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
import transformers
from huggingface_hub import constants
from torch.utils._python_dispatch import TorchDispatchMode

from space.errors import ProblemError
from tuner.tables.importers.products import GROUPED, OPERATORS, Array, count_product
from tuner.tables.shapes import Tally

#: Tokens of the captured pass: a prime that no model has as an extent, so that an M that scales with tokens stands out.
TOKENS: Final = 61
#: Last part of the names of projections that close a block, in models without a tensor-parallel plan.
_CLOSING: Final = frozenset({
    "o_proj", "out_proj", "down_proj", "dense_4h_to_h", "c_proj", "fc2", "fc_out", "wo", "Wo", "w2", "out_lin", "lin2",
    "x_proj", "linear_out", "ffn_output", "output_linear",
})  # fmt: skip
#: The same of those whose last part says too little: BERT's intermediate.dense opens what its output.dense closes.
_CLOSING_ENDS: Final = ("attention.dense", "attn.dense", "output.dense", "attention.output", "feed_forward.value")
#: Last part of the names of projections that open a block, where a tensor-parallel plan leaves them out.
_OPENING: Final = frozenset({
    "q_proj", "k_proj", "v_proj", "qkv_proj", "q_b_proj", "kv_b_proj", "gate_proj", "up_proj", "gate_up_proj",
    "query_key_value", "c_attn", "Wqkv", "output_gate", "in_proj", "dt_proj", "linear_x", "linear_y",
    "w1", "w3", "fc1", "fc_in", "c_fc", "dense_h_to_4h", "lin1", "wi", "Wi", "input_linear",
})  # fmt: skip
#: Projections of keys and of values, and of queries, keys and values in one, by the last part of their names.
_KEYS: Final = frozenset({"k_proj", "v_proj"})
_QUERIES_AND_KEYS: Final = frozenset({"qkv_proj", "query_key_value", "Wqkv", "c_attn"})
#: Modules whose weight is the vocabulary, alone or shared with the embedding; engines pad it to multiples of this.
_VOCABULARY: Final = ("lm_head", "embed_out", "embed_tokens", "wte", "embed_in", "embeddings")
_VOCABULARY_STEP: Final = 64
#: Style of a plan's projections whose parts transformers puts together again.
_GATHERED: Final = "colwise_gather_output"
_MOST_SAID: Final = 300
_GROUPED: Final = "grouped products, as those of experts: gemmtune tunes none yet"
_PASSING: Final = "products of two activations, as in attention: engines run fused kernels for them"


@dataclass(frozen=True, slots=True)
class Product:
    """One call of an operator.

    Attributes:
        weight: dotted name of the parameter that it multiplies by; empty without one.
        reads: identity of A's memory.
    """

    operator: str
    arrays: tuple[Array | None, ...]
    weight: str
    reads: int

    @property
    def module(self) -> str:
        """Dotted name of the projection."""
        return self.weight.rpartition(".")[0]


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Records every product that runs while it is active.

    Args:
        weights: names of parameters by the identity of their memory.
    """

    def __init__(self, weights: Mapping[int, str]) -> None:
        super().__init__()
        self.products: list[Product] = []
        self.grouped = 0
        self._weights = dict(weights)
        # Memory that is freed could be given to another tensor, which would look like the same one.
        self._held: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        operator = func.overloadpacket.__name__
        if operator in OPERATORS:
            first = OPERATORS[operator]
            self._held.append(args[first])
            weight = self._weights.get(_memory(args[first + 1]), "")
            self.products.append(Product(operator, tuple(map(_array, args)), weight, _memory(args[first])))
        elif operator in GROUPED:
            self.grouped += 1
        elif operator == "_local_scalar_dense" and args[0].is_meta:
            # Models ask whether all of a mask holds; without data it does.
            return args[0].dtype is torch.bool
        found = func(*args, **(kwargs or {}))
        if operator == "_to_copy" and (converted := self._weights.get(_memory(args[0]))):
            # Routers multiply by their weight in f32, a tensor of its own.
            self._held.append(found)
            self._weights[_memory(found)] = converted
        return found


@contextmanager
def _offline() -> Iterator[None]:
    """Keeps transformers off the network: a config may name a repository, whose files a model would get and use."""
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@_offline()
def captured(config: dict[str, Any], ms: tuple[int, ...], tp: int, tf32: bool, tally: Tally, where: str) -> None:
    """Counts the products of one forward pass for each M.

    Raises:
        ProblemError: transformers can't build or run the model, or `tp` does not divide its heads or an extent.
    """
    model = _model(config, where)
    weights = {_memory(parameter): name for name, parameter in model.named_parameters()}
    recorder = Recorder(weights)
    try:
        with torch.no_grad(), recorder:
            model(torch.zeros((1, TOKENS), dtype=torch.long, device="meta"), **_switches(model))
    except Exception as error:  # whatever a model's code raises
        said = _line(f"{type(error).__name__}: {error}")
        raise ProblemError(f"{where}: the model can't run on the meta device ({said})") from error
    if recorder.grouped:
        tally.leave_out(_GROUPED, recorder.grouped * len(ms))
    ran = {product.weight for product in recorder.products}
    linears = (module for module in model.modules() if isinstance(module, torch.nn.Linear))
    if idle := sum(weights[_memory(module.weight)] not in ran for module in linears):
        tally.leave_out("projections that do not run on text alone, as those of vision towers", idle * len(ms))
    plan = _Plan(model, tp, where)
    products = list(_merged(recorder.products, plan, tally, len(ms)))
    if plan.whole:
        tally.note(f"--tp {tp} leaves whole, on every GPU: {', '.join(sorted(plan.whole))}")
    if plan.biased:
        said = f"{', '.join(sorted(plan.biased))}, which is listed without it too"
        tally.note(f"--tp {tp}: one GPU adds the bias of {said}")
    for product in products:
        for m in ms:
            count_product(tally, product.operator, _with_rows(product, m), "", f"{where}, {product.module}", tf32)


def _model(config: dict[str, Any], where: str) -> Any:  # noqa: ANN401  (a transformers model)
    kind = config.pop("model_type")
    word = config.pop("torch_dtype", None) or config.pop("dtype", None) or "bfloat16"
    dtype = getattr(torch, str(word).removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        raise ProblemError(f"{where}: torch_dtype = {repr(word)[:80]} is no dtype of PyTorch: say bfloat16 or float16")
    try:
        made = transformers.AutoConfig.for_model(kind, **config)
        # The base model of any other kind has no logits.
        with_logits = (transformers.AutoModelForCausalLM, transformers.AutoModelForImageTextToText)
        known = (factory for factory in with_logits if type(made) in factory._model_mapping)
        factory = next(known, transformers.AutoModel)
        with torch.device("meta"):
            return factory.from_config(made, dtype=dtype).eval()
    except Exception as error:  # whatever transformers raises
        version = transformers.__version__
        raise ProblemError(f"{where}: transformers {version} can't build {kind!r} ({_line(error)})") from error


def _line(error: object) -> str:
    """What transformers says, as one line that is not too long."""
    said = " ".join(str(error).split())
    return said if len(said) <= _MOST_SAID else f"{said[:_MOST_SAID]}…"


def _switches(model: Any) -> dict[str, bool]:  # noqa: ANN401
    return {"use_cache": False} if hasattr(model.config, "use_cache") else {}


class _Plan:
    """How tensor parallelism cuts a model's projections.

    Attributes:
        whole: names of projections that it does not cut.
        biased: names of those that it cuts along K and that have a bias.
    """

    def __init__(self, model: Any, tp: int, where: str) -> None:  # noqa: ANN401
        self._tp, self._where = tp, where
        self.whole: set[str] = set()
        self.biased: set[str] = set()
        plan = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None) or {}
        self._styles = {_pattern(name): style for name, style in plan.items()}
        text = model.config.get_text_config()
        self._kv_heads = _heads_of_keys(text) or tp
        self._heads = getattr(text, "num_attention_heads", None) or tp
        self._check_heads()
        self._planned = bool(self._styles)

    def _check_heads(self) -> None:
        """Checks that each GPU gets whole heads: engines start with no other number of GPUs."""
        if self._heads % self._tp:
            raise ProblemError(
                f"{self._where}: {self._heads} heads of attention are not a multiple of --tp {self._tp}: give a number "
                f"of GPUs that divides them"
            )
        if self._kv_heads % self._tp and self._tp % self._kv_heads:
            raise ProblemError(
                f"{self._where}: --tp {self._tp} neither divides the {self._kv_heads} heads of keys nor is a multiple "
                f"of them: give a number of GPUs that is one or the other"
            )

    def cut(self, product: Product) -> Product:
        """One GPU's part of a product.

        Raises:
            ProblemError: the extent is not a multiple of the GPUs.
        """
        style = self._style(product.module)
        if product.module.endswith(_VOCABULARY):
            return self._cut_vocabulary(product)
        if self._tp == 1:
            return product
        if not style:
            self.whole.add(product.module.rpartition(".")[2])
            return product
        first = OPERATORS[product.operator]
        a, b = product.arrays[first : first + 2]
        assert a is not None
        assert b is not None
        (m, k), n = a.shape[-2:], b.shape[-1]
        if style == "row":
            return _with_extents(product, m, n, self._part(k, product))
        return _with_extents(product, m, self._cut_columns(n, product), k)

    def without_bias(self, product: Product) -> Product | None:
        """A cut projection that closes a block, as all GPUs but one run it: what they make is added up, and the bias is
        to be in the sum once. None for other products.
        """
        if self._tp == 1 or product.operator != "addmm" or self._style(product.module) != "row":
            return None
        self.biased.add(product.module.rpartition(".")[2])
        return replace(product, operator="mm", arrays=product.arrays[1:])

    def _cut_columns(self, n: int, product: Product) -> int:
        """One GPU's part of N. Engines give each GPU a head of keys and of values whole, though others have it too."""
        last = product.module.rpartition(".")[2]
        if self._kv_heads >= self._tp or last not in _KEYS | _QUERIES_AND_KEYS:
            return self._part(n, product)
        if last in _KEYS:
            return n // self._kv_heads
        head, rest = divmod(n, self._heads + 2 * self._kv_heads)
        return self._part(n, product) if rest else (self._part(self._heads, product) + 2) * head

    def _cut_vocabulary(self, product: Product) -> Product:
        """Logits, whose N engines pad to whole parts."""
        first = OPERATORS[product.operator]
        a, b = product.arrays[first : first + 2]
        assert a is not None
        assert b is not None
        padded = -(-b.shape[-1] // _VOCABULARY_STEP) * _VOCABULARY_STEP
        return _with_extents(product, a.shape[-2], self._part(padded, product), a.shape[-1])

    def _style(self, module: str) -> str:
        last, said = module.rpartition(".")[2], str(self._styles.get(_pattern(module), ""))
        closes = last in _CLOSING or module.endswith(_CLOSING_ENDS)
        if self._planned and said:
            # transformers gathers what its own code can't split; engines split it up to the end of the block.
            gathered = closes and said == _GATHERED
            return "row" if "row" in said or gathered else "column" if "col" in said else ""
        # Plans may be of the experts or of the logits alone; engines cut the rest too.
        return "row" if closes else "column" if last in _OPENING or not self._planned else ""

    def _part(self, extent: int, product: Product) -> int:
        if extent % self._tp:
            raise ProblemError(f"{self._where}: {extent} of {product.module} is not a multiple of --tp {self._tp}")
        return extent // self._tp


def _heads_of_keys(text: Any) -> int | None:  # noqa: ANN401  (a config)
    """Heads of keys of a model; None if its config does not say."""
    # Falcon's config has a number that a model of the old architecture ignores.
    if getattr(text, "multi_query", False) and not getattr(text, "new_decoder_architecture", False):
        return 1
    return getattr(text, "num_key_value_heads", None) or getattr(text, "num_kv_heads", None)


def _pattern(name: str) -> str:
    """A dotted name with `*` for numbers and without the model's own prefix."""
    parts = ["*" if part.isdigit() else part for part in name.split(".")]
    return ".".join(parts[1:] if parts[0] in ("model", "transformer") else parts)


def _merged(products: list[Product], plan: _Plan, tally: Tally, runs: int) -> Iterator[Product]:
    """One GPU's products, those of one module that read the same memory as one.

    Args:
        runs: how often a product that is left out counts, once for each M.
    """
    groups: dict[tuple[object, ...], list[Product]] = {}
    for place, product in enumerate(products):
        if not product.weight:
            tally.leave_out(_PASSING, runs)
            continue
        first = OPERATORS[product.operator]
        a, b = product.arrays[first], product.arrays[first + 1]
        if a is None or b is None:
            groups[(place,)] = [product]
            continue
        if len(a.shape) != 2:
            # Its rows are tokens of the captured pass, as often as there are experts.
            tally.leave_out(_GROUPED, runs)
            continue
        parent = product.module.rpartition(".")[0]
        key = product.reads, parent, product.operator, a.shape, b.strides == (1, b.shape[0])
        groups.setdefault(key, []).append(product)
    for members in groups.values():
        cut = [plan.cut(member) for member in members]
        first = OPERATORS[cut[0].operator]
        a = cut[0].arrays[first]
        if len(cut) == 1 or a is None:
            yield cut[0]
            if (plain := plan.without_bias(cut[0])) is not None:
                yield plain
            continue
        n = sum(_columns(member) for member in cut)
        yield _with_extents(cut[0], a.shape[0], n, a.shape[1])


def _columns(product: Product) -> int:
    b = product.arrays[OPERATORS[product.operator] + 1]
    return b.shape[-1] if b is not None else 0


def _with_rows(product: Product, m: int) -> tuple[Array | None, ...]:
    """The arguments for `m` tokens; unchanged where the rows are no tokens."""
    a = product.arrays[OPERATORS[product.operator]]
    if a is None or len(a.shape) != 2 or a.shape[0] != TOKENS:
        return product.arrays
    return _with_extents(product, m, _columns(product), a.shape[1]).arrays


def _with_extents(product: Product, m: int, n: int, k: int) -> Product:
    """The product with other extents, dense."""
    first = OPERATORS[product.operator]
    arrays = list(product.arrays)
    a, b = arrays[first : first + 2]
    assert a is not None
    assert b is not None
    by_column = b.strides[-1] != 1 or (b.strides[-2] == 1 and b.shape[-1] == 1)
    arrays[first] = replace(a, shape=(m, k), strides=(k, 1))
    arrays[first + 1] = replace(b, shape=(k, n), strides=(1, k) if by_column else (n, 1))
    if product.operator == "addmm" and (added := arrays[0]) is not None and len(added.shape) == 1:
        arrays[0] = replace(added, shape=(n,), strides=(1,))
    return replace(product, arrays=tuple(arrays))


def _array(value: Any) -> Array | None:  # noqa: ANN401
    if not isinstance(value, torch.Tensor):
        return None
    return Array(tuple(value.shape), tuple(value.stride()), str(value.dtype).removeprefix("torch."))


def _memory(tensor: Any) -> int:  # noqa: ANN401
    return int(tensor.untyped_storage()._cdata)
