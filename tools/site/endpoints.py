"""The page on the HTTP API, from the description that the service itself gives at /openapi.json."""

from __future__ import annotations

import json
from typing import Any

HEAD = """# HTTP

Written from the service's own description, which a running service gives at `/openapi.json`. Every request but those for `/healthz`, `/readyz` and the dashboard's files
carries `Authorization: Bearer KEY`. Bodies are JSON, of at most {max_body} bytes. Errors are `{{"error": "…"}}` with a sentence that says what was wrong and what is allowed.
From Python use [`dpb.Client`](api.md): it repeats what was cut off, and nothing is counted twice. Who may use which key, limits and retention: [Operating the service](../operate.md).

"""


def page() -> str:
    """The whole page as Markdown."""
    from dpbandit.service.openapi import document
    from dpbandit.service.settings import Settings

    settings = Settings(store="")
    described = document(settings)
    parts = [HEAD.format(max_body=f"{settings.max_body:,}")]
    parts += [
        _operation(method, path, operation)
        for path, item in described["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    ]
    parts.append("## Errors\n\n| status | |\n|---|---|")
    parts += [f"| {code} | {words} |" for code, words in sorted(_errors(described).items())]
    parts.append("\n## What is in the bodies\n")
    parts += [_schema(name, schema) for name, schema in described["components"]["schemas"].items()]
    return "\n".join(parts)


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    lines = [f"## {method.upper()} {path}", "", operation["summary"], ""]
    if "requestBody" in operation:
        lines += [f"Body: {_type(_of(operation['requestBody']['content']))}.", ""]
    answers = operation["responses"]
    good: dict[str, list[str]] = {}
    for code in sorted(code for code in answers if code < "300"):
        words = f"with {_type(_of(answers[code]['content']))}" if code != "204" else "and no body"
        good.setdefault(words, []).append(code)
    lines += [f"Answer: {' or '.join(codes)} {words}." for words, codes in good.items()]
    errors = ", ".join(code for code in sorted(answers) if code >= "400")
    return "\n".join([*lines, "", f"Errors: {errors}.", ""])


def _errors(described: dict[str, Any]) -> dict[str, str]:
    """What each error status means, wherever it is used."""
    operations = [
        o for item in described["paths"].values() for m, o in item.items() if m != "parameters"
    ]
    answers = [pair for operation in operations for pair in operation["responses"].items()]
    return {
        code: answer["description"]
        for code, answer in reversed(answers)
        if code >= "400" and "$ref" in _of(answer["content"])
    }


def _of(content: dict[str, Any]) -> dict[str, Any]:
    return next(iter(content.values()))["schema"]


def _schema(name: str, schema: dict[str, Any]) -> str:
    lines = [f"### {name}", ""]
    needed = set(schema.get("required", ()))
    known = schema.get("properties", {})
    lines += ["| field | | |", "|---|---|---|"]
    for field in [*known, *(n for n in schema.get("required", ()) if n not in known)]:
        kind = known.get(field, {})
        lines.append(f"| `{field}` | {_type(kind)} | {_rules(kind, field in needed)} |")
    return "\n".join(lines) + "\n"


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return ", or ".join(_type(part) for part in schema["anyOf"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "prefixItems" in schema:
        return "[" + ", ".join(_type(part) for part in schema["prefixItems"]) + "]"
    kinds = schema.get("type", "")
    items = f" of {_type(schema['items'])}" if schema.get("items") else ""
    return " or ".join(
        kind + items * (kind == "array") for kind in ([kinds] if isinstance(kinds, str) else kinds)
    )


def _rules(schema: dict[str, Any], needed: bool) -> str:
    words = {
        "minimum": "at least {}",
        "exclusiveMinimum": "above {}",
        "maximum": "at most {}",
        "exclusiveMaximum": "below {}",
        "minItems": "at least {} items",
        "maxItems": "at most {} items",
        "maxLength": "at most {} characters",
        "pattern": "matches `{}`",
        "default": "default {}",
        "description": "{}",
    }
    rules = ["required"] if needed else []
    for key, sentence in words.items():
        if key in schema:
            value = schema[key]
            rules.append(
                sentence.format(f"{value:,}" if isinstance(value, int) and value > 9999 else value)
            )
    return "; ".join(rules).replace("|", "\\|")
