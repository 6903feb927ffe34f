"""Private functions of torch: their public counterparts take as long as a launch.

torch's compiled graphs call them too. If a version of torch lacks one, the slower public function replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd import forward_ad


def torchs(path: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """The function at `torch._C.<path>`; `otherwise` if this torch has none."""
    found = reduce(lambda place, name: getattr(place, name, None), path.split("."), torch._C)
    return found if callable(found) else otherwise


def public_empty_strided(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> Tensor:
    """An uninitialized tensor on the current device."""
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


def public_current_stream(device: int) -> int:
    """Handle of the device's current stream; 0 for its default stream."""
    return int(torch.cuda.current_stream(device).cuda_stream)


def public_modes() -> int:
    """1: torch has no public count of dispatch modes, so every call goes through the dispatcher."""
    return 1


def public_allows_tf32() -> bool:
    """Whether torch may multiply f32 as tf32.

    Raises:
        RuntimeError: settings contradict each other.
    """
    return bool(torch.backends.cuda.matmul.allow_tf32)


def transformed() -> bool:
    """Whether a function transform (`vmap`, `jvp`, `grad`) or forward-mode differentiation is at work.

    Their tensors look like plain ones, and a launch would lose what they carry.
    """
    return bool(transforming() or forward_ad._current_level >= 0)


def transforming_before_2_13() -> bool:
    """Whether a function transform is at work, as `torch.compile` of older versions can tell outside of transforms.

    Inside of one that is compiled too, they refuse to compile.
    """
    return level_of_transforms() is not None


def transforming_since_2_13() -> bool:
    """Whether a function transform is at work, as `torch.compile` can tell anywhere."""
    return bool(depth_of_transforms() > 0)


#: Allocates without the dispatcher, in a third of the time.
empty_strided: Final = torchs("_dynamo.guards._empty_strided_cuda", public_empty_strided)
current_device: Final = torchs("_cuda_getDevice", torch.cuda.current_device)
current_stream: Final = torchs("_cuda_getCurrentRawStream", public_current_stream)
#: Not `get_float32_matmul_precision`, which says what was set last by that name, whatever another setting says since.
allows_tf32: Final = torchs("_get_cublas_allow_tf32", public_allows_tf32)
#: How many function transforms are at work, and the level of the innermost; None without one.
depth_of_transforms: Final = torchs("_functorch.get_dynamic_layer_stack_depth", lambda: 0)
level_of_transforms: Final = torchs("_functorch.maybe_current_level", lambda: None)
transforming: Final = transforming_since_2_13 if torch.__version__ >= (2, 13) else transforming_before_2_13
#: Number of active dispatch modes; each must see every operator.
modes: Final = torchs("_len_torch_dispatch_stack", public_modes)
#: Whether `torch.jit.trace` listens, which would take what it is not shown for a constant.
tracing: Final = torchs("_is_tracing", torch.jit.is_tracing)
