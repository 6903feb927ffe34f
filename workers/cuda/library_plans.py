"""Algorithms of cuBLASLt as plain text, made without the library, for programs that know nothing of configs.

Beside plans of our kernels (`workers.cuda.plans`) these are what `gemmtune/cublaslt.hpp` reads: which version of the
library measured, what it is told of the product, and the attributes that rebuild the algorithm. Names are those of
cublasLtMatmulDescAttributes_t and cublasLtMatmulAlgoConfigAttributes_t, without their prefixes.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import Final

from space.config import Config
from space.families.cublaslt import BY_RANK
from space.kinds.gemm import Gemm
from workers.cuda.families.algorithms import ATTRIBUTES, least_alignment_bytes
from workers.cuda.families.products import product_of

SCHEMA: Final = "gemmtune.algorithm/1"


def rebuilds(config: Config) -> bool:
    """Whether a config of the library has the attributes of its algorithm, and not a rank alone."""
    return config["algorithm"] != BY_RANK


def algorithm_of(problem: Gemm, config: Config, version: str) -> str:
    """The text of an algorithm.

    Args:
        config: one that `rebuilds` an algorithm.
        version: of the library that measured, as cublasLtGetVersion says it.
    """
    product = product_of(problem)
    lines = [SCHEMA, f"problem {problem.key}", f"cublaslt {version}", f"workspace {config['workspace_bytes']}"]
    lines += [f"align {name} {bytes_}" for name, bytes_ in least_alignment_bytes(problem).items()]
    lines.append(f"compute {product.compute} {product.scalar}")
    lines += [f"operation {name} {value}" for name, value in product.operation.items()]
    for name, matrix in zip(("first", "second", "source", "output"), product.matrices, strict=True):
        lines.append(" ".join(map(str, ("matrix", name, *astuple(matrix)))))
    lines += [f"attribute {name} {config[knob]}" for knob, (name, _) in ATTRIBUTES.items()]
    return "\n".join([*lines, "end", ""])
