"""What is called of torch past its public functions, because those take as long as the launch.

torch's compiled graphs call the same. Where a version of torch lacks one, what is public does it, only slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

import torch
from torch import Tensor


def torchs(path: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """`torch._C.` and `path`; `otherwise` where this torch has nothing of that name."""
    found = reduce(lambda place, name: getattr(place, name, None), path.split("."), torch._C)
    return found if callable(found) else otherwise


def public_empty_strided(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Memory on the current device."""
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


def public_current_stream(device: int) -> int:
    """Handle of the device's current stream; 0 is its default one."""
    return int(torch.cuda.current_stream(device).cuda_stream)


def public_modes() -> int:
    """Nobody can be asked how many dispatch modes are on: one may be, so that calls go through the dispatcher."""
    return 1


#: A tensor without the dispatcher: a third of the time.
empty_strided: Final = torchs("_dynamo.guards._empty_strided_cuda", public_empty_strided)
current_device: Final = torchs("_cuda_getDevice", torch.cuda.current_device)
current_stream: Final = torchs("_cuda_getCurrentRawStream", public_current_stream)
#: How many dispatch modes are on, which want to see every operator.
modes: Final = torchs("_len_torch_dispatch_stack", public_modes)
