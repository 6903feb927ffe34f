"""What a source finds is launched at once, proved first, or left to torch. On the CPU, with a GPU that is none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune import GemmtuneError  # noqa: E402
from gemmtune.torch import configure, kernels, sources, streams, torchs  # noqa: E402
from gemmtune.torch.sources import Found  # noqa: E402
from space.config import Config  # noqa: E402
from space.devices import profile_named  # noqa: E402
from space.family import family_named  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.support import DEVICE, FAMILY  # noqa: E402
from tests.unit.tuner.tables.test_exporters import TIED, WON, entry, guarded, table, written  # noqa: E402
from tuner.errors import SettingsError  # noqa: E402
from workers.cuda import calls  # noqa: E402
from workers.cuda.copies import Strides  # noqa: E402
from workers.cuda.families import cublaslt  # noqa: E402

PROBLEM = Gemm.of(64, 64, 64)
LEGAL, LIBRARYS = FAMILY.config({}), family_named("cublaslt").config({})
MEASURED = Found(LEGAL, "measured: here", "measured", build_digest="build")
#: Where the rows of A lie apart.
APART = {"a": Strides(96, 96 * 64)}


class Card:
    """An H200 on which every kernel is loaded."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.name, self.major, self.minor, self.uuid = "NVIDIA H200", 9, 0, "1"
        self.multi_processor_count, self.L2_cache_size = 132, 60 << 20
        self.watts, self.asked, self.build = (700.0, 700.0), list[str](), "build"
        patched.setattr(torch.cuda, "get_device_properties", lambda _: self)
        patched.setattr(kernels, "power_limits_w", lambda name: self.watts)
        patched.setattr(kernels, "_loaded", self.loaded)

    def loaded(self, *_: object) -> tuple[Any, str]:
        scratch = {
            "sums": SimpleNamespace(size_bytes=8, zeroed=False), "counts": SimpleNamespace(size_bytes=4, zeroed=True)
        }  # fmt: skip
        aligned = {"a": 16, "b": 16, "c": 16, "source": 2, "bias": 2}
        return SimpleNamespace(scratch=scratch, alignment_bytes=aligned), self.build

    def look_up(self, found: Found, strides: dict[str, Strides] | None = None) -> kernels.Kernel | str:
        def find(problem: Gemm, device: str) -> Found:
            self.asked.append(device)
            return found

        source = SimpleNamespace(find=find)
        return kernels._looked_up(PROBLEM, 0, (64, 64), torch.bfloat16, source, strides or {})


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    return Card(monkeypatch)


def test_what_was_measured_for_this_product_by_this_build_is_proved(card: Card) -> None:
    found = card.look_up(MEASURED)
    assert isinstance(found, kernels.Kernel)
    assert (found.config, found.build, found.proved) == (LEGAL, "build", True)
    assert (found.passing, found.zeroed) == ({"sums": 8}, {"counts": 4})


@pytest.mark.parametrize("source", ["stale", "recorded", "nearest", "predicted"])
def test_what_was_not_measured_for_this_product_on_this_card_is_not_proved(card: Card, source: str) -> None:
    found = card.look_up(Found(LEGAL, source, source, build_digest="build"))
    assert isinstance(found, kernels.Kernel)
    assert not found.proved
    assert found.unmeasured == (source in ("nearest", "predicted"))


def test_another_build_than_the_measured_one_is_not_proved(card: Card) -> None:
    card.build = "another"
    found = card.look_up(MEASURED)
    assert isinstance(found, kernels.Kernel)
    assert (found.build, found.proved) == ("another", False)


def test_nothing_is_proved_on_operands_that_lie_apart(card: Card) -> None:
    found = card.look_up(MEASURED, APART)
    assert isinstance(found, kernels.Kernel)
    assert (found.strides, found.proved) == (APART, False)


def test_a_config_that_a_rule_forbids_is_left_to_torch(card: Card) -> None:
    illegal: Config = FAMILY.config({"tile_n": 256, "stages": 12})
    said = card.look_up(Found(illegal, "measured: here", "measured", build_digest="build"))
    assert str(said).startswith("the config found is illegal here, smem.capacity: ")


def test_a_family_that_is_not_built_for_this_card_is_left_to_torch(card: Card) -> None:
    card.name, card.major, card.multi_processor_count = "NVIDIA A100-SXM4-80GB", 8, 108
    assert "is built for sm_90a, NVIDIA A100-SXM4-80GB is sm_80" in str(card.look_up(MEASURED))


def test_a_capped_card_asks_for_its_own_bests(card: Card) -> None:
    card.watts = 500.0, 700.0
    card.look_up(MEASURED)
    assert card.asked == ["NVIDIA H200 (500 W)"]


@pytest.mark.parametrize("version", ["130100", "130200", ""])
def test_the_librarys_algorithm_runs_with_the_version_that_was_measured(
    card: Card, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(cublaslt, "opened", lambda device: (SimpleNamespace(version="130200"), ""))
    monkeypatch.setattr("workers.cuda.calls.LibraryCall", lambda *_: card.loaded()[0])
    found = card.look_up(Found(LIBRARYS, "measured: here", "measured", cublaslt=version))
    if version == "130100":
        assert "was measured with cuBLASLt 130100, and 130200 is loaded here" in str(found)
    else:
        assert isinstance(found, kernels.Kernel)
        # Of an unknown version nobody knows what was measured.
        assert (found.build, found.proved) == ("", bool(version))


def test_a_library_that_is_not_here_is_left_to_torch(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "opened", lambda device: (None, "cuBLASLt is not here"))
    assert card.look_up(Found(LIBRARYS, "measured: here", "measured")) == "cuBLASLt is not here"


def test_what_a_table_leaves_to_the_library_has_no_config_of_a_neighbour(tmp_path: Path) -> None:
    won = entry(WON)
    won["provenance"]["kernel_source_digest"] = "of last week"
    (content,) = written("json", guarded(table(won, entry(TIED, 1.0)))).values()
    (tmp_path / "t.json").write_bytes(content)
    configure(tmp_path / "t.json")
    try:
        assert sources.chosen().find(WON, DEVICE).source == "stale"
        found = sources.chosen().find(TIED, DEVICE)
        assert (found.config, found.why) == (None, "the table leaves this problem to the library")
        assert sources.chosen().find(Gemm.of(24, 4096, 4096), DEVICE).source in ("nearest", "predicted")
    finally:
        configure()


def test_a_service_gets_no_token_in_the_clear() -> None:
    try:
        configure("http://tune.example:8643", token="gt_secret")
        with pytest.raises(GemmtuneError, match="would send the token in the clear"):
            sources.chosen()
        configure("http://tune.example:8643", token="gt_secret", insecure=True)
        assert isinstance(sources.chosen(), sources.Service)
    finally:
        configure()


@pytest.mark.parametrize("named", ["http://", "http://10.1.2.3", "sqlite:///lost.db", "x://y"])
def test_a_source_that_can_not_be_opened_leaves_calls_to_torch(card: Card, named: str) -> None:
    configure(named, token="token")
    try:
        assert isinstance(kernels._looked_up(PROBLEM, 0, (64, 64), torch.bfloat16, None, {}), str)
    finally:
        configure()


def test_shapes_share_their_devices_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[object] = []
    monkeypatch.setattr(calls, "Call", lambda *given: shared.append(given[-1]))
    monkeypatch.setattr(streams, "allocated", lambda size, device: torch.empty(size, dtype=torch.uint8))
    monkeypatch.setattr(kernels, "_PROGRAMS", {})
    found, h200 = Found(LEGAL, "", build_digest="build", program=b"cubin"), profile_named(DEVICE)
    for m, device in ((64, 0), (128, 0), (64, 1)):
        assert kernels._loaded(Gemm.of(m, 64, 64), found, device, h200) == (None, "build")
    assert [each is kernels._PROGRAMS[0] for each in shared] == [True, True, False]


def test_without_a_folder_for_builds_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise SettingsError("this user has no home folder")

    monkeypatch.setattr(kernels, "settings", none)
    assert kernels._loaded(PROBLEM, MEASURED, 0, profile_named(DEVICE)) == "this user has no home folder"


@pytest.mark.parametrize("full", ["the program", "the counters"])
def test_where_a_kernel_cannot_be_loaded_for_lack_of_memory_torch_computes_for_now(
    card: Card, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    """torch's own operator needs none of it, and a call raised an error where it would have had room."""
    def lacking(*_: object) -> Any:  # noqa: ANN401
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(kernels, "_PREPARED", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    if full == "the program":
        monkeypatch.setattr(kernels, "_loaded", lacking)
    else:
        monkeypatch.setattr(streams, "reserve", lambda _: SimpleNamespace(refill=lacking))
    source = SimpleNamespace(find=lambda *_: MEASURED)
    made = kernels.prepare("kind", PROBLEM, 0, (64, 64), torch.bfloat16, "none", source=source)
    assert isinstance(made, torchs.ForNow)
    assert made.why == "too little memory is free to load its kernel"
    a, b = (torch.ones(64, 64, dtype=torch.bfloat16) for _ in "ab")
    assert torch.equal(made.launch(a, b, None, None, 1.0, 0.0), a @ b)
