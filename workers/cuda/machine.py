"""What a machine says of itself while CUDA is not initialized: the process may still fork."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """The cards and versions that evidence depends on; each is empty where nothing tells it.

    Attributes:
        cards: the driver's names of the GPUs.
        driver: its version, as in `580.159.04`.
        cublaslt: version of the library that this process loads, as in `130100`.
    """

    cards: tuple[str, ...] = ()
    driver: str = ""
    cublaslt: str = ""


def this_machine() -> Machine:
    """The machine of this process, by NVML and the library's own version."""
    return Machine(*_cards_and_driver(), _cublaslt())


def _cards_and_driver() -> tuple[tuple[str, ...], str]:
    try:
        from cuda.bindings import nvml

        nvml.init_v2()
        handles = [nvml.device_get_handle_by_index_v2(index) for index in range(nvml.device_get_count_v2())]
        return tuple(str(nvml.device_get_name(handle)) for handle in handles), str(nvml.system_get_driver_version())
    except Exception:
        # No driver, or a container that hides NVML.
        return (), ""


def _cublaslt() -> str:
    try:
        from nvmath.bindings import cublasLt

        return str(cublasLt.get_version())
    except Exception:
        # The library or its bindings are not installed.
        return ""
