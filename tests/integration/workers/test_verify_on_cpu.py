"""The verification kernels' own text, run on the CPU: the reference is float64 of NumPy, and the checks catch.

The GPU runs the same text in `tests/gpu/test_verification.py`. Needs a C++20 compiler.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES
from tests.elements import encoded, numbers, product
from tests.on_cpu import compiled, needs_compiler
from workers.cuda import operands, outputs, verification
from workers.cuda.kinds import gemm
from workers.kernels.verify import SOURCE as VERIFY

pytestmark = needs_compiler

#: Arguments of each kernel; structures go by address.
KERNELS = {
    "fill_random": "void* a, u64 b, u64 c, int d, int e", "fill_bytes": "u8* a, u64 b, u32 c",
    "reference_sums": "const Operand* a, const Operand* b, double* c, int d",
    "row_norms": "const Operand* a, float* b, int c, int d", "finish_reference": "const Finish* a",
    "compare_output": "const void* a, int b, const double* c, const float* d, u64 e, CheckResult* f",
    "count_differences": "const u8* a, const u8* b, u64 c, int d, CheckResult* e",
    "check_guards": "const GuardZone* a, int b, CheckResult* c",
    "poison_outputs": "u8* const* a, int b, u64 c, u32 d", "digest_outputs": "const u8* const* a, int b, u64 c, u64* d",
    "compare_digests": "u64* a, int b, u64 c, Changed* d",
}  # fmt: skip
PROBLEMS = [
    *(Gemm.of(37, 29, 50, dtype, layout) for dtype, layout in
      (("bf16", "nt"), ("fp16", "nn"), ("tf32", "tn"), ("fp8_e4m3", "tt"), ("fp8_e5m2", "nt"), ("int8", "nn"),
       ("uint8", "tt"))),
    Gemm.of(33, 18, 40, "bf16", "nt", 3, "alpha+beta+bias+gelu"),
    Gemm.of(33, 18, 40, "int8,uint8,bf16,s32", "nt", 1, "alpha+bias+silu"),
    Gemm.of(33, 18, 40, "fp8_e4m3,fp8_e5m2,fp8_e4m3,f32", "nt", 1, "alpha+beta"),
    Gemm.of(33, 18, 40, "int8,int8,int8,s32", "nt", 1, "alpha+bias+relu"),
    Gemm.of(33, 18, 40, "fp8_e4m3,fp8_e4m3,bf16,f32", "nt", 1, "scaled"),
    Gemm.of(33, 18, 40, "fp8_e5m2,fp8_e4m3,fp16,f32", "nt", 1, "scaled_rowwise+bias+gelu"),
]  # fmt: skip


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    wrappers = []
    for name, arguments in KERNELS.items():
        given = []
        for argument in arguments.split(", "):
            by_value = re.match(r"const (Operand|Finish)\*", argument)
            given.append(("*" if by_value else "") + argument[-1])
        call = f"run_grid(blocks, [=] {{ {name}({', '.join(given)}); }});"
        wrappers.append(f"void cpu_{name}({arguments}, unsigned blocks) {{ {call} }}")
    text = VERIFY.render() + 'extern "C" {\n' + "\n".join(wrappers) + "\n}\n"
    return compiled(text, tmp_path_factory.mktemp("verify"))


@dataclass
class Memory:
    """Host memory in a device buffer's place."""

    size_bytes: int

    def __post_init__(self) -> None:
        self._held = np.zeros(self.size_bytes + 512, dtype=np.uint8)
        self.address = -(-self._held.ctypes.data // 256) * 256

    @classmethod
    def allocate(cls, size_bytes: int) -> Memory:
        return cls(max(size_bytes, 16))

    def fetch(self, address: int, stream: object) -> None:
        ctypes.memmove(self.address, address, self.size_bytes)

    def free(self) -> None: ...


class Host:
    """The driver calls that operands and checks make, on the host."""

    cuMemcpyDtoDAsync = staticmethod(lambda to, source, size, stream: (0, ctypes.memmove(to, source, size))[:1])  # noqa: N815
    cuMemcpyHtoD = staticmethod(lambda to, source, size: (0, ctypes.memmove(to, source, size))[:1])  # noqa: N815
    cuMemsetD8Async = staticmethod(lambda to, value, size, stream: (0, ctypes.memset(to, value, size))[:1])  # noqa: N815
    cuMemGetInfo = staticmethod(lambda: (0, 2**26, 2**26))  # noqa: N815


class Stream:
    handle = 0

    def synchronize(self) -> None: ...


class Watch:
    us = 0.0

    def around(self, stream: object) -> Watch:
        return self

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
    def destroy(self) -> None: ...


class Tools:
    def __init__(self, kernels: ctypes.CDLL) -> None:
        self._kernels = kernels

    def run(self, name: str, *arguments: Any, blocks: int | None = None) -> None:  # noqa: ANN401
        given = [ctypes.byref(one) if isinstance(one, ctypes.Structure) else one for one in arguments]
        getattr(self._kernels, f"cpu_{name}")(*given, ctypes.c_uint(blocks or 2))


@pytest.fixture
def host(kernels: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Tools:
    for module in (operands, gemm, outputs, verification):
        monkeypatch.setattr(module, "Buffer", Memory)
    for module in (operands, outputs, verification):
        monkeypatch.setattr(module, "cu", Host)
    for module in (outputs, verification):
        monkeypatch.setattr(module, "HostBuffer", Memory)
    monkeypatch.setattr(verification, "Stopwatch", Watch)
    return Tools(kernels)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key)
def test_the_reference_is_float64_of_numpy(host: Tools, problem: Gemm) -> None:
    from workers.cuda.bounds import FORMATS

    ops = operands.Operands(problem, 77, host, Stream(), l2_bytes=100)
    form = FORMATS[problem.dtype_c]
    for copy, expected in ((ops.copies[0], ops.reference), (ops.probe, ops.probe_reference)):
        if copy is not None:
            right = product(problem, copy)
            got = numbers(expected.values, right.size, "f64").reshape(right.shape)
            assert np.allclose(got, np.clip(right, form.least, form.most), rtol=1e-12, atol=1e-12)


def test_operands_of_tf32_have_a_programs_bits_and_round_as_they_are_cut(host: Tools) -> None:
    problem = Gemm.of(35, 17, 24, "tf32")
    ops = operands.Operands(problem, 3, host, Stream(), l2_bytes=100)
    words = np.frombuffer(ctypes.string_at(ops.copies[0].a, 35 * 24 * 4), np.uint32)
    assert len(set((words & 0xFFF).tolist())) > 500
    assert (words & 0x1000 == 0).all()


@pytest.mark.parametrize("dtypes", ["bf16", "tf32", "int8", "fp8_e4m3,fp8_e4m3,fp16,f32"])
def test_what_is_right_passes_and_each_kind_of_wrong_is_told(host: Tools, dtypes: str) -> None:
    problem = Gemm.of(35, 17, 24, dtypes)
    ops = operands.Operands(problem, 3, host, Stream(), l2_bytes=100)
    verifier = verification.Verifier(ops, outputs.Outputs(ops, host, Stream()), host, Stream())
    size = DTYPE_BYTES[problem.dtype_c]

    def right(copy: Any) -> None:  # noqa: ANN401
        raw = encoded(product(problem, copy), problem.dtype_c).tobytes()
        ctypes.memmove(copy.c, raw, len(raw))

    def also(change: Any) -> str:  # noqa: ANN401
        def launch(copy: Any) -> None:  # noqa: ANN401
            right(copy)
            change(copy)

        reason = verifier.verify(launch).reason
        ops.refresh()
        return str(reason)

    end = problem.m * problem.n * size
    turns = iter((0x11, 0x22, 0x33))
    assert also(lambda copy: None) == ""
    unwritten = also(lambda copy: ctypes.memset(copy.c + end - size, 0xFF, size))
    assert re.match(r"[12] of 595 elements are outside their bound, the first at row 34, column 16", unwritten)
    assert "differ between two runs" in also(lambda copy: ctypes.memset(copy.c, next(turns), size))
    for at in (lambda copy: copy.c - 1, lambda copy: copy.c + end, lambda copy: copy.a - 1, lambda copy: copy.b - 1):
        assert "outside C were overwritten" in also(lambda copy, at=at: ctypes.memset(at(copy), 0, 1))


@pytest.mark.parametrize(("dtypes", "blocks"), [("bf16", 2), ("fp8_e4m3,fp8_e4m3,fp8_e4m3,f32", 7), ("int8", 1)])
def test_what_timed_launches_change_is_seen_in_every_copy(host: Tools, dtypes: str, blocks: int) -> None:
    problem = Gemm.of(35, 17, 24, dtypes)
    ops = operands.Operands(problem, 3, host, Stream(), l2_bytes=3000)
    count = len(ops.copies)
    assert count > 2
    run = host.run
    host.run = lambda name, *given, blocks=blocks: run(name, *given, blocks=blocks)  # type: ignore[method-assign]
    watched = outputs.Outputs(ops, host, Stream())
    size = ops.output.size_bytes

    def write(value: int) -> None:
        for copy in ops.copies:
            ctypes.memset(copy.c, value, size)

    write(0x11)
    watched.digest_first()
    verified = watched.verified
    watched.compare(verified)
    assert watched.differences() == {}
    # One byte anywhere, an output that nothing wrote, and what only the place of a word tells.
    last = ops.copies[-1].c
    for at in (0, size // 2, size - 1):
        ctypes.memset(last + at, 0x12, 1)
        watched.compare(verified, slot=5)
        assert watched.differences() == {5: outputs.Difference(1, count, count - 1)}
        write(0x11)
    ctypes.memset(last, 0x22, 8)
    watched.digest_first()
    ctypes.memmove(ops.copies[0].c, last, size)
    watched.digest_first()
    swapped = watched.verified
    ctypes.memset(ops.copies[0].c, 0x11, 8)
    ctypes.memset(ops.copies[0].c + 8, 0x22, 8)
    watched.digest_first()
    assert watched.verified != swapped
    write(0x11)
    for turn in range(2):
        watched.poison(turn)
        watched.compare(verified)
        watched.compare(verified)
        assert watched.differences() == {0: outputs.Difference(2 * count, count, 0)}
