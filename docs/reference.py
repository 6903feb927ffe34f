"""The reference pages that the code knows best: commands, settings and routes. `docs.site` adds them to the site."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from api.app import create_app
from gemmtune.command import COMMANDS
from tuner import exits
from tuner.evidence.store import Store
from tuner.settings import Settings

ROOT: Final = Path(__file__).resolve().parents[1]
_MADE: Final = "*Generated from the code.*"


def pages() -> dict[str, str]:
    """The text of every reference page, by file name."""
    return {"commands.md": commands(), "settings.md": settings(), "routes.md": routes()}


def commands() -> str:
    """Every command with its arguments and options."""
    lines = ["# Commands", "", _MADE, "", "Every command takes `--help`. Exit codes are the same for all of them:", ""]
    codes = re.findall(r"^(\d+)\s+(.+)$", exits.__doc__ or "", re.MULTILINE)
    lines += ["| code | meaning |", "| --- | --- |", *(f"| {code} | {text} |" for code, text in codes), ""]
    for command in COMMANDS:
        lines += _command(f"gemmtune {command.name}", command.load(), 2)
    return "\n".join(lines).rstrip() + "\n"


def _command(name: str, command: Any, level: int) -> Iterator[str]:  # noqa: ANN401  (Typer's own Click)
    yield from ("#" * level + f" {name}", "")
    yield from (_text(command.help or ""), "")
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    rows = [row for parameter in shown if parameter.name != "help" and (row := _parameter(parameter))]
    if rows:
        yield from ("| argument or option | meaning |", "| --- | --- |", *rows, "")
    for sub in getattr(command, "commands", {}).values():
        yield from _command(f"{name} {sub.name}", sub, level + 1)


def _parameter(parameter: Any) -> str:  # noqa: ANN401  (Typer's own Click)
    if parameter.param_type_name == "argument":
        return f"| `{parameter.metavar or parameter.name.upper()}` | {_text(getattr(parameter, 'help', '') or '')} |"
    words = ", ".join(f"`{word}`" for word in [*parameter.opts, *parameter.secondary_opts])
    default = parameter.default
    plain = isinstance(default, int | float | str) and not isinstance(default, bool) and default != ""
    named = "[default:" in (parameter.help or "")
    return f"| {words} | {_text(parameter.help or '')}{f' Default: {default}.' if plain and not named else ''} |"


def _text(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("\\[", "[").replace("|", "\\|").strip()


def settings() -> str:
    """Every setting with its variable, default and meaning."""
    about = _attributes(Settings)
    lines = ["# Settings", "", _MADE, "", "Each setting is an environment variable, read once when a process starts."]
    lines += ["", "| variable | default | meaning |", "| --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = str(getattr(default, "get_secret_value", lambda value=default: value)())
        shown = shown.replace(str(Path.home()), "~").replace(str(ROOT), "…")
        meaning = about[name][0].upper() + about[name][1:]
        lines.append(f"| `GEMMTUNE_{name.upper()}` | {f'`{shown}`' if shown not in ('', 'None') else ''} | {meaning} |")
    return "\n".join(lines) + "\n"


def _attributes(of: type) -> dict[str, str]:
    """The texts of a class's `Attributes`, by name."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in inspect.cleandoc(of.__doc__ or "").partition("Attributes:")[2].splitlines():
        if match := re.match(r"    (\w[\w, ]*): (.*)", line):
            names = match[1].split(", ")
            found |= dict.fromkeys(names, match[2])
        elif line.strip():
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found


def routes() -> str:
    """Every route with its parameters."""
    with Store.open("sqlite:///:memory:") as store:
        document = create_app(store).openapi()
    shown = "[The API](../api.md) shows each route with an example; `/openapi.json` is complete."
    lines = ["# Routes", "", _MADE, "", shown, ""]
    for path, methods in sorted(document["paths"].items()):
        for method, route in methods.items():
            about = route.get("description") or route.get("summary", "")
            lines += [f"## {method.upper()} {path}", "", _text(about), ""]
            rows = [
                f"| `{one['name']}` | {one['in']} | {'yes' if one.get('required') else ''} | "
                f"{_text(one.get('description') or one['schema'].get('description', ''))} |"
                for one in route.get("parameters", ())
            ]
            if rows:
                lines += ["| parameter | in | required | meaning |", "| --- | --- | --- | --- |", *rows, ""]
            lines += [f"Answers: {', '.join(sorted(route['responses']))}.", ""]
    return "\n".join(lines).rstrip() + "\n"
