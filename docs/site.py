"""Builds the documentation site from the files that the repository shows.

    python -m docs.site [--out site]

The tree is copied as it is, so that every relative link means the same on the site and in the repository; MkDocs then
checks each of them (`strict`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import yaml

from docs.reference import pages

ROOT: Final = Path(__file__).resolve().parents[1]
#: What pages link to beside the pages themselves.
FILES: Final = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "haproxy.cfg", "docker-compose.yml")
NAVIGATION: Final = [
    {"Home": "README.md"},
    {"Start": [{"Start": "docs/start.md"}, {"Concepts": "docs/concepts.md"}, {"What a number means": "docs/numbers.md"},
               {"How fast": "docs/speed.md"},
               {"Questions and errors": "docs/troubleshooting.md"}, {"Compared with others": "docs/comparison.md"}]},
    {"Use": [{"From a model to kernels": "docs/use.md"}, {"On torch tensors": "docs/torch.md"},
             {"The pages": "docs/dashboard.md"}, {"The API": "docs/api.md"}, {"HTTP errors": "docs/http-errors.md"},
             {"Recordings": "docs/recordings.md"}, {"Add your card": "docs/contribute-a-card.md"}]},
    {"Operate": [{"Operations": "docs/operations.md"}, {"A fleet": "docs/fleet.md"}, {"Limits": "docs/limits.md"},
                 {"Threat model": "docs/threat-model.md"}]},
    {"How it works": [{"Architecture": "docs/architecture.md"}, {"Search": "docs/search.md"},
                      {"Measuring": "docs/measuring.md"}]},
    {"Kernels": [{"Overview": "docs/kernels.md"}, {"Clusters, tiles, waves": "docs/kernels/scheduling.md"},
                 {"Loads, rings and L2": "docs/kernels/memory.md"}, {"Stores": "docs/kernels/epilogue.md"},
                 {"Splitting K": "docs/kernels/split.md"}, {"Instructions and power": "docs/kernels/issue.md"},
                 {"Launches": "docs/kernels/launch.md"}, {"Measuring and searching": "docs/kernels/search.md"},
                 {"gemv": "docs/gemv.md"}, {"mma_sync": "docs/mma_sync.md"}]},
    {"Reference": [{"Commands": "docs/reference/commands.md"}, {"Settings": "docs/reference/settings.md"},
                   {"Routes": "docs/reference/routes.md"}, {"Files and columns": "docs/files.md"}]},
    {"Project": ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]},
]  # fmt: skip


def build(out: Path) -> int:
    """Builds the site; returns MkDocs' exit status, which is not 0 where a link leads nowhere."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT / "docs", tree / "docs", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        shutil.copytree(ROOT / "benchmarks" / "results", tree / "benchmarks" / "results")
        (tree / "docs" / "reference").mkdir()
        for name, text in pages().items():
            (tree / "docs" / "reference" / name).write_text(text)
        for name in FILES:
            shutil.copy(ROOT / name, tree / name)
        settings = {
            "site_name": "gemmtune", "docs_dir": str(tree), "site_dir": str(out.resolve()), "strict": True,
            "theme": {"name": "material", "font": False, "features": ["navigation.sections", "content.code.copy"]},
            "markdown_extensions": ["tables", "admonition", {"toc": {"permalink": True}}, "pymdownx.superfences"],
            "validation": {"nav": {"omitted_files": "ignore"}, "links": {"not_found": "warn", "anchors": "warn"}},
            "nav": NAVIGATION,
        }  # fmt: skip
        file = Path(folder) / "mkdocs.yml"
        file.write_text(yaml.safe_dump(settings))
        command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", str(file)]
        # The theme announces its successor at every build.
        return subprocess.run(command, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}).returncode


def main() -> None:
    """Builds the site into a folder."""
    asked = argparse.ArgumentParser()
    asked.add_argument("--out", type=Path, default=ROOT / "site")
    sys.exit(build(asked.parse_args().out))


if __name__ == "__main__":
    main()
