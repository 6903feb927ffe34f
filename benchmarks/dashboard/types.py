"""The API's types for the pages' modules: `python -m benchmarks.dashboard.types` writes `types.d.ts` from the OpenAPI.

Nothing that is served reads it; `make check-pages` checks the modules against it, and a test holds it current.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any, Final

from api.app import create_app
from tuner.evidence.store import Store

_ROOT: Final = Path(__file__).resolve().parents[2]
FILE: Final = _ROOT / "api" / "dashboard" / "static" / "types.d.ts"
_HEAD: Final = "// Written by `python -m benchmarks.dashboard.types` from the OpenAPI; not to be edited.\n"
_PLAIN: Final = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}
_WORD: Final = re.compile(r"[A-Za-z_]\w*")


def document() -> dict[str, Any]:
    """The service's OpenAPI."""
    with Store.open("sqlite://") as store:
        return dict(create_app(store).openapi())


def declarations(openapi: dict[str, Any]) -> str:
    """All schemas as interfaces, and what each path answers to GET and POST."""
    schemas = openapi["components"]["schemas"]
    parts = [f"  type {_name(name)} = {_type(schema, '  ')};" for name, schema in sorted(schemas.items())]
    for verb, title in (("get", "Got"), ("post", "Posted")):
        answers = {
            path: _answer(operations[verb]) for path, operations in openapi["paths"].items() if verb in operations
        }
        # Fixed paths first, then those with the most parts: `/v1/campaigns/${string}` matches longer ones, too.
        order = sorted(filter(answers.get, answers), key=lambda path: ("{" in path, -path.count("/"), path))
        cases = "".join(f"\n    P extends {_pattern(path)} ? {answers[path]} :" for path in order)
        parts.append(f"  type {title}<P extends string> ={cases}\n    any;")
    return _HEAD + "declare namespace Api {\n" + "\n".join(parts) + "\n}\n"


def _pattern(path: str) -> str:
    """A path as a key: `/v1/studies/{study_id}` is any text between its parts."""
    return "`" + re.sub(r"\{[^}]+\}", "${string}", path) + "`" if "{" in path else f'"{path}"'


def _answer(operation: dict[str, Any]) -> str:
    for status in ("200", "201"):
        content = operation["responses"].get(status, {}).get("content", {}).get("application/json")
        if content and content.get("schema"):
            return _type(content["schema"], "    ")
    return ""


def _name(schema: str) -> str:
    return re.sub(r"\W", "_", schema)


def _type(schema: dict[str, Any], indent: str) -> str:
    """One schema in TypeScript."""
    if "$ref" in schema:
        return _name(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return " | ".join(f'"{value}"' if isinstance(value, str) else str(value) for value in schema["enum"])
    if "const" in schema:
        return f'"{schema["const"]}"' if isinstance(schema["const"], str) else str(schema["const"]).lower()
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " | ".join(dict.fromkeys(_type(part, indent) for part in schema[several]))
    kind = schema.get("type")
    if kind == "array":
        return _array(schema, indent)
    if kind == "object" or "properties" in schema:
        return _object(schema, indent)
    return _PLAIN.get(str(kind), "any")


def _array(schema: dict[str, Any], indent: str) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(_type(part, indent) for part in schema['prefixItems'])}]"
    inner = _type(schema.get("items", {}), indent)
    return f"({inner})[]" if "|" in inner else f"{inner}[]"


def _object(schema: dict[str, Any], indent: str) -> str:
    required = schema.get("required", ())
    rows = [
        f"{indent}  {name if _WORD.fullmatch(name) else repr(name)}{'' if name in required else '?'}: "
        f"{_type(part, indent + '  ')};\n"
        for name, part in schema.get("properties", {}).items()
    ]
    more = schema.get("additionalProperties")
    if rows:
        extra = f"{indent}  [more: string]: any;\n" if more else ""
        return f"{{\n{''.join(rows)}{extra}{indent}}}"
    return f"Record<string, {_type(more, indent)}>" if isinstance(more, dict) and more else "Record<string, any>"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    FILE.write_text(declarations(document()))
