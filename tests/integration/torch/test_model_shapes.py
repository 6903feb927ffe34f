"""Shapes of public architectures from their config.json, beside lists that were worked out by hand.

Widths are those of the published models; most have few layers here, which only changes counts. `make test-torch` runs
it: it needs PyTorch and transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="transformers is not in the lock files: `make test-torch` installs it")

from space.errors import ProblemError
from space.kinds.gemm import Gemm
from tuner.tables.importers import shapes_of
from tuner.tables.importers.products import PLAIN_F32
from tuner.tables.importers.source import Asked

#: By name: the config, and N, K, count (and epilogue, layout) of each product.
MODELS: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "Llama 3 8B": (
        {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256},
        [(6144, 4096, 32), (4096, 4096, 32), (28672, 4096, 32), (4096, 14336, 32), (128256, 4096, 1)],
    ),
    "Mistral 7B": (
        {"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 2,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32768},
        [(6144, 4096, 2), (4096, 4096, 2), (28672, 4096, 2), (4096, 14336, 2), (32768, 4096, 1)],
    ),
    "Qwen2.5 7B": (
        {"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 2,
         "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064},
        [(4608, 3584, 2, "bias"), (3584, 3584, 2), (37888, 3584, 2), (3584, 18944, 2), (152064, 3584, 1)],
    ),
    "Qwen3 8B": (
        {"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 2,
         "head_dim": 128, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 151936},
        [(6144, 4096, 2), (4096, 4096, 2), (24576, 4096, 2), (4096, 12288, 2), (151936, 4096, 1)],
    ),
    "Qwen3 30B A3B": (
        {"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
         "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 2, "num_attention_heads": 32,
         "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936},
        [(5120, 2048, 2), (2048, 4096, 2), (128, 2048, 2), (151936, 2048, 1)],
    ),
    "Mixtral 8x7B": (
        {"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 2,
         "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8, "vocab_size": 32000},
        [(6144, 4096, 2), (4096, 4096, 2), (8, 4096, 2), (32000, 4096, 1)],
    ),
    "Gemma 2 9B": (
        {"model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 2,
         "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "vocab_size": 256000},
        [(8192, 3584, 2), (3584, 4096, 2), (28672, 3584, 2), (3584, 14336, 2), (256000, 3584, 1)],
    ),
    "Phi-3 mini": (
        {"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 2,
         "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32064, "pad_token_id": 32000},
        [(9216, 3072, 2), (3072, 3072, 2), (16384, 3072, 2), (3072, 8192, 2), (32064, 3072, 1)],
    ),
    "GPT-2": (
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024},
        [(2304, 768, 12, "bias", "nn"), (768, 768, 12, "bias", "nn"), (3072, 768, 12, "bias", "nn"),
         (768, 3072, 12, "bias", "nn"), (50304, 768, 1)],
    ),
    "Pythia 1.4B": (
        {"model_type": "gpt_neox", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2,
         "num_attention_heads": 16, "vocab_size": 50304},
        [(6144, 2048, 2, "bias"), (2048, 2048, 2, "bias"), (8192, 2048, 2, "bias"), (2048, 8192, 2, "bias"),
         (50304, 2048, 1)],
    ),
    "DeepSeek V3": (
        {"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
         "num_hidden_layers": 3, "first_k_dense_replace": 1, "num_attention_heads": 128, "num_key_value_heads": 128,
         "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
         "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
         "vocab_size": 129280},
        [(2112, 7168, 3), (24576, 1536, 3), (32768, 512, 3), (7168, 16384, 3), (36864, 7168, 1), (7168, 18432, 1),
         (4096, 7168, 2), (7168, 2048, 2), (129280, 7168, 1)],
    ),
}  # fmt: skip


def listed(folder: Path, config: dict[str, Any], **asked: Any) -> dict[Gemm, int]:  # noqa: ANN401
    path = folder / "config.json"
    path.write_text(json.dumps({"torch_dtype": "bfloat16"} | config))
    return dict(shapes_of([path], Asked(**{"ms": (16,)} | asked)).counts)  # type: ignore[arg-type]


def problem(n: int, k: int, epilogue: str = "none", layout: str = "nt", m: int = 16) -> Gemm:
    return Gemm.of(m, n, k, layout=layout, epilogue=epilogue)


@pytest.mark.parametrize("name", MODELS)
def test_a_models_products_are_those_of_a_serving_engine(tmp_path: Path, name: str) -> None:
    config, expected = MODELS[name]
    assert listed(tmp_path, config) == {problem(n, k, *rest): count for n, k, count, *rest in expected}


def test_m_goes_through_its_ladder_and_tensor_parallelism_cuts(tmp_path: Path) -> None:
    config = MODELS["Llama 3 8B"][0] | {"num_hidden_layers": 2}
    # With 16 GPUs and 8 heads of keys, each GPU has one whole head of keys and one of values.
    for tp, shapes in (
        (8, [(768, 4096), (4096, 512), (3584, 4096), (4096, 1792)]),
        (16, [(512, 4096), (4096, 256), (1792, 4096), (4096, 896)]),
    ):
        found = listed(tmp_path, config, ms=(1, 64), tp=tp)
        expected = {problem(n, k, m=m): 2 for n, k in shapes for m in (1, 64)}
        expected |= {problem(128256 // tp, 4096, m=m): 1 for m in (1, 64)}
        assert found == expected


def test_a_fused_projection_keeps_one_head_of_keys_and_one_of_values_whole(tmp_path: Path) -> None:
    config = MODELS["Phi-3 mini"][0] | {"num_key_value_heads": 8, "num_hidden_layers": 1}
    # 32 heads of queries: four, and two, beside one head of each.
    for tp, n in ((8, (4 + 1 + 1) * 96), (16, (2 + 1 + 1) * 96)):
        assert listed(tmp_path, config, tp=tp)[problem(n, 3072)] == 1


@pytest.mark.parametrize(
    ("config", "tp", "n", "k"),
    [
        # StarCoder: 48 heads of queries and one of keys, which every GPU has whole.
        ({"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 1, "n_head": 48}, 8, (6 + 1 + 1) * 128, 6144),
        # Falcon 40B: 128 heads and 8 of keys.
        ({"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 1, "num_attention_heads": 128,
          "num_kv_heads": 8, "new_decoder_architecture": True}, 16, (8 + 1 + 1) * 64, 8192),
        # The number of heads of keys is ignored without the new architecture.
        ({"model_type": "falcon", "hidden_size": 4096, "num_hidden_layers": 1, "num_attention_heads": 64,
          "num_kv_heads": 8}, 2, (32 + 1 + 1) * 64, 4096),
    ],
)  # fmt: skip
def test_heads_of_keys_that_all_queries_share_stay_whole(
    tmp_path: Path, config: dict[str, Any], tp: int, n: int, k: int
) -> None:
    found = listed(tmp_path, config, tp=tp)
    assert {gemm.n for gemm in found if gemm.k == k} >= {n}


@pytest.mark.parametrize(
    ("heads", "tp", "said"),
    [
        ((28, 4), 8, "28 heads of attention are not a multiple of --tp 8"),
        ((40, 10), 8, "--tp 8 neither divides the 10 heads of keys nor is a multiple of them"),
        ((40, 10), 4, "--tp 4 neither divides the 10 heads of keys nor is a multiple of them"),
        ((24, 8), 12, "--tp 12 neither divides the 8 heads of keys nor is a multiple of them"),
    ],
)
def test_no_gpu_gets_a_part_of_a_head(tmp_path: Path, heads: tuple[int, int], tp: int, said: str) -> None:
    # Every extent is a multiple of the GPUs.
    config = {"model_type": "qwen2", "hidden_size": heads[0] * 128, "intermediate_size": 18432, "num_hidden_layers": 1,
              "num_attention_heads": heads[0], "num_key_value_heads": heads[1], "vocab_size": 64 * 12}  # fmt: skip
    with pytest.raises(ProblemError, match=said):
        listed(tmp_path, config, tp=tp)


GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 4,
    "num_hidden_layers": 2, "vocab_size": 201088,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "shapes", "whole"),
    [
        (MODELS["DeepSeek V3"][0],
         [(2112, 7168, 3), (3072, 1536, 3), (4096, 512, 3), (7168, 2048, 3), (4608, 7168, 1), (7168, 2304, 1),
          (512, 7168, 2), (7168, 256, 2), (16160, 7168, 1)],
         "gate, kv_a_proj_with_mqa, q_a_proj"),
        (GPT_OSS,
         [(640, 2880, 2, "bias"), (2880, 512, 2, "bias"), (2880, 512, 2), (32, 2880, 2, "bias"), (25136, 2880, 1)],
         "router"),
    ],
)  # fmt: skip
def test_attention_is_cut_where_the_plan_is_of_the_experts_alone(
    tmp_path: Path, config: dict[str, Any], shapes: list[tuple[Any, ...]], whole: str
) -> None:
    assert listed(tmp_path, config, tp=8) == {problem(n, k, *rest): count for n, k, count, *rest in shapes}
    notes = shapes_of([tmp_path / "config.json"], Asked(ms=(16,), tp=8)).notes
    assert f"--tp 8 leaves whole, on every GPU: {whole}" in notes
    once = "--tp 8: one GPU adds the bias of o_proj, which is listed without it too"
    assert (once in notes) == (config is GPT_OSS)


#: By name: the config, and N, K, count (and epilogue) of products on each of two GPUs.
HALVED: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "Falcon": (
        {"model_type": "falcon", "hidden_size": 4096, "num_hidden_layers": 1, "num_attention_heads": 64},
        [(2176, 4096, 1), (4096, 2048, 1), (8192, 4096, 1), (4096, 8192, 1)],
    ),
    "Bloom, whose biases of closing projections one GPU adds": (
        {"model_type": "bloom", "hidden_size": 64, "n_layer": 1, "n_head": 8},
        [(96, 64, 1, "bias"), (64, 32, 1, "bias"), (64, 32, 1), (128, 64, 1, "bias"), (64, 128, 1, "bias"),
         (64, 128, 1)],
    ),
    "BERT": (
        {"model_type": "bert", "num_hidden_layers": 1},
        [(1152, 768, 1, "bias"), (768, 384, 1, "bias"), (1536, 768, 1, "bias"), (768, 1536, 1, "bias")],
    ),
    "RoBERTa": (
        {"model_type": "roberta", "num_hidden_layers": 1},
        [(1152, 768, 1, "bias"), (768, 384, 1, "bias"), (1536, 768, 1, "bias"), (768, 1536, 1, "bias")],
    ),
    "Mamba": (
        {"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 1},
        [(1536, 768, 1), (80, 768, 1), (768, 48, 1), (768, 768, 1)],
    ),
    "LFM2, whose plan is of the logits": (
        {"model_type": "lfm2", "hidden_size": 2560, "num_hidden_layers": 1, "layer_types": ["conv"]},
        [(3840, 2560, 1), (2560, 1280, 1), (8192, 2560, 1), (2560, 4096, 1)],
    ),
    "Jamba, whose plan is of the experts": (
        {"model_type": "jamba", "num_hidden_layers": 1},
        [(8192, 4096, 1), (288, 4096, 1), (4096, 256, 1), (4096, 4096, 1)],
    ),
    "Qwen3-Next, whose plan gathers linear attention": (
        {"model_type": "qwen3_next", "num_hidden_layers": 1, "num_experts": 4, "num_experts_per_tok": 2},
        [(6176, 2048, 1), (2048, 2048, 1), (512, 2048, 1), (2048, 256, 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HALVED)
def test_what_closes_a_block_is_cut_along_k_and_what_opens_it_along_n(tmp_path: Path, name: str) -> None:
    config, expected = HALVED[name]
    found = listed(tmp_path, config, tp=2)
    assert {problem(n, k, *rest): count for n, k, count, *rest in expected}.items() <= found.items()


def test_experts_in_one_batch_are_left_out_as_grouped_ones_are(tmp_path: Path) -> None:
    config = {"model_type": "llama4_text", "num_hidden_layers": 2, "num_local_experts": 4}
    found = listed(tmp_path, config, ms=(16, 64), tp=2)
    assert {(gemm.m, gemm.batch) for gemm in found} == {(16, 1), (64, 1)}
    for ms in ((16,), (16, 64)):
        left_out = shapes_of([tmp_path / "config.json"], Asked(ms=ms)).left_out
        assert left_out["grouped products, as those of experts: gemmtune tunes none yet"] == 4 * len(ms)


def test_a_router_in_f32_is_a_projection(tmp_path: Path) -> None:
    config, ms = MODELS["DeepSeek V3"][0], (16, 64)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"torch_dtype": "bfloat16"} | config))
    plain, fast = (shapes_of([path], Asked(ms=ms, tf32=tf32)) for tf32 in (False, True))
    routers = {Gemm.of(m, 256, 7168, "tf32"): 2 for m in ms}
    assert {problem: fast.counts[problem] for problem in fast.counts.keys() - plain.counts.keys()} == routers
    assert {why: count for why, count in plain.left_out.items() if "f32" in why} == {PLAIN_F32: 4}
    passing = "products of two activations, as in attention: engines run fused kernels for them"
    assert plain.left_out[passing] == fast.left_out[passing] == 2 * 3 * len(ms)  # two of each layer's attention


def test_logits_are_padded_whatever_the_embedding_is_called(tmp_path: Path) -> None:
    found = listed(tmp_path, {"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 1, "vocab_size": 50280})
    assert found[problem(50304, 768)] == 1


def test_a_model_with_a_vision_tower_has_logits_and_says_what_text_does_not_run(tmp_path: Path) -> None:
    text = {"hidden_size": 2048, "num_hidden_layers": 1, "intermediate_size": 4096, "num_attention_heads": 16,
            "num_key_value_heads": 4, "vocab_size": 151936}  # fmt: skip
    found = listed(tmp_path, {"model_type": "qwen2_5_vl", "text_config": text, "vision_config": {"depth": 2}})
    assert found[problem(151936, 2048)] == 1
    left_out = shapes_of([tmp_path / "config.json"], Asked(ms=(16,))).left_out
    assert left_out["projections that do not run on text alone, as those of vision towers"] > 2


def test_an_infinite_float_is_read_as_transformers_writes_it(tmp_path: Path) -> None:
    config = {"model_type": "mamba2", "num_hidden_layers": 1, "time_step_limit": [0.0, {"__float__": "Infinity"}]}
    assert listed(tmp_path, config)[problem(18560, 4096)] == 1


@pytest.mark.parametrize(
    ("config", "asked", "said"),
    [
        ({"model_type": "no_such_model"}, {}, "can't build 'no_such_model'"),
        (MODELS["GPT-2"][0], {"tp": 7}, "12 heads of attention are not a multiple of --tp 7"),
        (MODELS["GPT-2"][0] | {"n_inner": 3070}, {"tp": 4}, r"3070 of .*c_fc is not a multiple of --tp 4"),
        (MODELS["Mistral 7B"][0] | {"hidden_size": "wide"}, {}, "can't build 'mistral'"),
        (MODELS["Mistral 7B"][0] | {"torch_dtype": "auto"}, {}, "torch_dtype = 'auto' is no dtype"),
        (MODELS["Mistral 7B"][0] | {"torch_dtype": "nn"}, {}, "torch_dtype = 'nn' is no dtype"),
    ],
)
def test_what_can_not_be_a_model_is_refused(
    tmp_path: Path, config: dict[str, Any], asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(ProblemError, match=said) as refused:
        listed(tmp_path, config, **asked)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_config_chooses_no_code_and_reaches_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("socket.getaddrinfo", lambda *address, **_: asked.append(address))
    config = MODELS["Mistral 7B"][0]
    chosen = {"_attn_implementation": "someone/kernel", "experts_implementation": "someone/other"}
    assert listed(tmp_path, config | chosen) == listed(tmp_path, config)
    named = {"backbone": "someone/model", "use_pretrained_backbone": True, "use_timm_backbone": False}
    for kind in ("detr", "maskformer", "dpt"):
        with pytest.raises(ProblemError, match="offline"):
            listed(tmp_path, named | {"model_type": kind})
    assert asked == []


def test_a_quantized_checkpoint_says_so(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = MODELS["GPT-2"][0] | {"n_layer": 1, "quantization_config": {"quant_method": "fp8"}}
    path.write_text(json.dumps(config))
    found = shapes_of([path], Asked(ms=(1,)))
    assert any("quantized" in note for note in found.notes)
