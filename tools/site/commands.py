"""The page on the command line, from the commands themselves: what `--help` says is what the page says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

HEAD = """# Command line

Written from the program when the site is built; `dpbandit COMMAND --help` says the same. Commands that print a table print JSON with `--json`. Exit status: 0, done;
2, a mistake in what was asked, said in one line; 3, `verify` or `audit` found that a promise does not hold; 130, stopped by Ctrl-C with what was finished; 1, anything else.

"""


def page() -> str:
    """The whole page as Markdown."""
    import typer

    from dpbandit.cli import app

    program = typer.main.get_command(app)
    return HEAD + "\n".join(_section(path, command) for path, command in walk(program))


def walk(
    group: Any, path: tuple[str, ...] = ("dpbandit",)
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below a group, with the words that call it."""
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from walk(command, (*path, name))
        else:
            yield (*path, name), command


def _section(path: tuple[str, ...], command: Any) -> str:
    says, examples = _parts(command.help or "")
    shown = [p for p in command.params if not p.hidden and p.name != "help"]
    arguments = [p for p in shown if not p.opts[0].startswith("-")]
    options = [p for p in shown if p.opts[0].startswith("-")]
    usage = " ".join(
        [*path, *(p.metavar or p.name.upper() for p in arguments), *["[OPTIONS]"][: len(options)]]
    )
    parts = [f"## {' '.join(path[1:])}", says, f"    {usage}"]
    if examples:
        parts.append("Examples:\n\n" + "\n".join(f"    {line}" for line in examples))
    if arguments:
        rows = "\n".join(
            f"| `{p.metavar or p.name.upper()}` | {_cell(p.help)} |" for p in arguments
        )
        parts.append(f"| argument | |\n|---|---|\n{rows}")
    if options:
        rows = "\n".join(f"| {_names(p)} | {_cell(p.help)} | {_default(p)} |" for p in options)
        parts.append(f"| option | | default |\n|---|---|---|\n{rows}")
    return "\n\n".join(parts) + "\n"


def _parts(text: str) -> tuple[str, list[str]]:
    """What a command's help says, and its examples."""
    before, *after = re.split(r"\[dim\]Examples?:\[/dim\]", text)
    lines = [re.sub(r"\s{3,}", "   # ", line.strip()) for line in "\n".join(after).splitlines()]
    return _plain(before).strip(), [_plain(line) for line in lines if line]


def _names(option: Any) -> str:
    value = "" if option.is_flag else f" {(option.metavar or _kind(option)).upper()}"
    names = ", ".join(f"`{name}{value}`" for name in option.opts)
    off = "".join(f", `{name}`" for name in option.secondary_opts)
    return names + off


def _kind(option: Any) -> str:
    words = re.findall(r"int|float|str|Path", str(option.type_descriptor.annotation))
    return (
        {"int": "number", "float": "number", "str": "text", "Path": "path"}[words[0]]
        if words
        else "value"
    )


def _default(option: Any) -> str:
    if option.required:
        also = f", or `{option.envvar}` in the environment" if option.envvar else ""
        return f"needed{also}"
    if option.default is None or option.is_flag or option.default == "":
        return ""
    return (
        f"`{option.default:,}`".replace(",", " ")
        if isinstance(option.default, int)
        else f"`{option.default}`"
    )


def _cell(text: str | None) -> str:
    return _plain(text or "").replace("|", "\\|")


def _plain(text: str) -> str:
    """Without Rich's marks."""
    from rich.text import Text

    return Text.from_markup(text).plain
