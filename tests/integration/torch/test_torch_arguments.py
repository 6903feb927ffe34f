"""Arguments that are no operands at all: each is refused in a sentence of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import Refused, configure, gemm, install, kernels, op, operators, record  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.unit.tuner.tables.test_exporters import entry, table  # noqa: E402
from tuner.errors import TableError  # noqa: E402
from tuner.tables.entries import canonical  # noqa: E402

BF16 = torch.bfloat16
Tensor = torch.Tensor


def operands(dtype: Any = BF16) -> tuple[Tensor, Tensor]:  # noqa: ANN401
    return torch.ones(4, 32).to(dtype), torch.ones(32, 16).to(dtype)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"activation": []}, r"activation \[\] is unknown: use none, relu, gelu, silu"),
        ({"activation": None}, "activation None is unknown"),
        ({"alpha": None}, "alpha is None: give a number"),
        ({"alpha": "2"}, "alpha is '2': give a number"),
        ({"alpha": 1j}, "alpha is 1j: give a number"),
        ({"beta": [2]}, r"beta is \[2\]: give a number"),
        ({"beta": torch.ones(())}, r"beta is a tensor, and kernels take a number: give beta.item\(\)"),
        ({"promoted": []}, r"promoted is \[\]: give True or False"),
        ({"promoted": "yes"}, "promoted is 'yes': give True or False"),
        ({"promoted": True}, "promoted=True is for 8-bit floats, and a is torch.bfloat16, .*: omit it"),
    ],
    ids=str,
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], said: str, device: str) -> None:
    a, b = (each.to(device) for each in operands())
    with pytest.raises(Refused, match=said):
        gemm(a, b, **options)
    if not isinstance(options.get("beta"), Tensor):
        with pytest.raises(Refused, match=said):
            gemm(a.requires_grad_(), b, **options)
    with pytest.raises(Refused, match=said):
        gemm(a.detach(), b, out=torch.empty(4, 16, dtype=BF16, device=device), **options)


@pytest.mark.parametrize("factor", ["alpha", "beta"])
@pytest.mark.parametrize("wrong", [None, "2"])
def test_factors_of_a_prepared_call_are_refused_too(
    factor: str, wrong: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    (a, b), source, problem = operands(), torch.ones(4, 16, dtype=BF16), Gemm.of(4, 16, 32, epilogue="alpha+beta")
    compute = operators.operator_of(problem, (4, 16), BF16, "none", torch.device("cpu"))
    absent = kernels.Absent("planted", 0, (4, 16), BF16, compute)
    monkeypatch.setattr(op, "prepared", lambda _: absent)
    with pytest.raises(Refused, match=f"{factor} is {wrong!r}: give a number"):
        gemm(a, b, source=source, **{"alpha": 2.0, factor: wrong})
    assert torch.equal(gemm(a, b, source=source, alpha=2.0), torch.full((4, 16), 65.0, dtype=BF16))


def test_integers_may_be_promoted_and_factors_may_be_of_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    a, b = operands(torch.int8)
    assert torch.equal(gemm(a, b, promoted=True), gemm(a, b))
    a, b = operands()
    assert torch.equal(gemm(a, b, alpha=numpy.float64(2)), gemm(a, b, alpha=2))
    assert torch.equal(gemm(a, b, alpha=numpy.float32(2)), gemm(a, b, alpha=2))


@pytest.mark.filterwarnings("ignore")  # of torch, whose sparse and nested tensors are prototypes
@pytest.mark.parametrize("name", ["a", "b", "bias", "source", "out", "scale_a"])
def test_tensors_without_strides_are_refused_by_name(name: str) -> None:
    given = {"a": torch.ones(4, 32), "b": torch.ones(32, 16), "bias": torch.ones(16), "source": torch.ones(4, 16),
             "out": torch.ones(4, 16), "scale_a": torch.ones(4, 1)}  # fmt: skip
    forms = [given[name].to_sparse(), given[name].to_mkldnn()]
    if given[name].dim() == 2:
        forms.append(given[name].to_sparse_csr())
    for form in forms:
        needed = {"a": given["a"], "b": given["b"], name: form}
        with pytest.raises(Refused, match=rf"{name} has the layout torch.\w+: give a dense tensor, {name}.to_dense"):
            gemm(needed.pop("a"), needed.pop("b"), **needed)


@pytest.mark.filterwarnings("ignore")
def test_nested_tensors_are_refused() -> None:
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor([torch.ones(3, 32), torch.ones(4, 32)], layout=layout)
        with pytest.raises(Refused, match="a is a nested tensor: give a dense one"):
            gemm(nested, torch.ones(32, 16))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trusted": None}, "trusted = None is no list: give some of measured, stale"),
        ({"trusted": 5}, "trusted = 5 is no list"),
        ({"trusted": "measured"}, r"is one text: give a list, as in \['measured'\]"),
        ({"trusted": [[]]}, r"trusted = \[\[\]\] is unknown"),
        ({"trusted": ["measured", None]}, r"trusted = \[None\] is unknown"),
        ({"source": 5}, "source = 5 is neither a path, a URL nor a Source"),
        ({"source": b"best.json"}, "source = b'best.json' is neither"),
    ],
    ids=str,
)
def test_sources_and_words_that_are_none_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        configure(**options)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8643", "sqlite:///best.db"])
def test_a_table_to_install_is_no_url(url: str) -> None:
    with pytest.raises(TableError, match=f"{url} is a URL, and .* only configure"):
        install(url)


@pytest.mark.parametrize("given", [None, 5, b"table.json", ""])
def test_what_is_no_path_is_neither_installed_nor_recorded(given: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=f"table = {given!r} is no path: give a table"):
        install(given)
    with pytest.raises(ValueError, match=f"path = {given!r} is no path: give the name of the list"), record(given):
        pass


def test_a_home_folder_is_the_same_for_tables_and_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with record("~/shapes.csv"):
        pass
    assert [path.name for path in tmp_path.rglob("*.csv")] == ["shapes.csv"]
    assert (tmp_path / "home" / "shapes.csv").exists()
    with pytest.raises(TableError, match=f"{tmp_path}/home/table.json can't be read"):
        install("~/table.json")


@pytest.mark.parametrize("options", [{"min_gain": "1.02"}, {"min_gain": float("nan")}, {"eager_us": None}], ids=str)
def test_gains_and_times_that_are_no_numbers_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "table.json").write_bytes(canonical(table(entry(Gemm.of(8, 8, 8)))))
    with pytest.raises(ValueError, match=f"{next(iter(options))} = .* is no number: give one"):
        install(tmp_path / "table.json", **options)
