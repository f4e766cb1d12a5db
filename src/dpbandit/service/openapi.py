"""The API described for machines: OpenAPI 3.1."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from dpbandit import __version__
from dpbandit.service.settings import Settings

_ERRORS = {
    "400": "Not JSON.",
    "401": "No key, or one that is not in force.",
    "403": "The key's role may not do this.",
    "404": "There is no such thing.",
    "405": "Another method is needed.",
    "408": "The body did not come in time.",
    "409": "It contradicts what is there.",
    "413": "Larger than this service allows.",
    "422": "JSON, but not what is needed here.",
    "503": "The store cannot be reached, or too much is waiting: try again.",
}


def document(settings: Settings) -> dict[str, Any]:
    """The whole description."""
    name = {
        "name": "name",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dpbandit",
            "version": __version__,
            "description": "Private decisions over HTTP: ask for a decision, report its reward "
            "later. No answer ever shows a reward, a clean statistic, or noise.",
        },
        "security": [{"key": []}],
        "paths": {
            "/v1/bandits": {
                "get": _operation("All bandits.", {"200": _ref("Bandits")}),
                "post": _operation(
                    "Make a bandit. The same again changes nothing.",
                    {"201": _ref("Bandit"), "200": _ref("Bandit")},
                    body=_ref("NewBandit"),
                    also=("409",),
                ),
            },
            "/v1/bandits/{name}": {
                "parameters": [name],
                "get": _operation("One bandit.", {"200": _ref("Bandit")}, also=("404",)),
                "delete": _operation(
                    "Erase a bandit's records. Its budget stays spent and its name taken.",
                    {"200": {"type": "object", "properties": {"status": {"type": "string"}}}},
                    also=("404",),
                ),
            },
            "/v1/bandits/{name}/decisions": {
                "parameters": [name],
                "post": _operation(
                    "Choose an arm. Answered when the decision is durable. With a `request` id "
                    "asking again is safe: 200 and the decision that was made the first time.",
                    {"201": _ref("Decision"), "200": _ref("Decision")},
                    body=_ref("NewDecision"),
                    also=("404", "409"),
                ),
            },
            "/v1/bandits/{name}/rewards": {
                "parameters": [name],
                "post": _operation(
                    "Report the reward of a decision, or a list of them. Answered when durable; "
                    "asking again is safe. In a list each gets a status of its own, 'unknown' and "
                    "'conflict' included.",
                    {
                        "200": {
                            "anyOf": [
                                _ref("RewardStatus"),
                                {"type": "array", "items": _ref("RewardStatusOf")},
                            ]
                        }
                    },
                    body={
                        "anyOf": [
                            _ref("Reward"),
                            {
                                "type": "array",
                                "items": _ref("Reward"),
                                "maxItems": settings.max_rewards,
                            },
                        ]
                    },
                    also=("404", "409"),
                ),
            },
            "/v1/bandits/{name}/privacy": {
                "parameters": [name],
                "get": _operation(
                    "What is promised, what was spent.", {"200": _ref("Privacy")}, also=("404",)
                ),
            },
            "/v1/bandits/{name}/releases": {
                "parameters": [name],
                "get": _operation(
                    "The latest releases, without models.", {"200": _ref("Releases")}, also=("404",)
                ),
            },
            "/v1/privacy": {
                "get": _operation("The total over all bandits.", {"200": _ref("Total")})
            },
            "/metrics": {
                "get": {
                    "summary": "Prometheus metrics.",
                    "responses": {
                        "200": {
                            "description": "Metrics.",
                            "content": {"text/plain": {"schema": {"type": "string"}}},
                        },
                        **_errors(()),
                    },
                }
            },
            "/openapi.json": {"get": _operation("This document.", {"200": {"type": "object"}})},
            "/healthz": {"get": _health("The process runs.")},
            "/readyz": {"get": _health("The store was reached lately.")},
        },
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(settings),
        },
    }


def _schemas(settings: Settings) -> dict[str, Any]:
    """What is sent and answered, with the limits of this service."""
    text = (files("dpbandit.service") / "static" / "schemas.json").read_text("utf-8")
    schemas: dict[str, Any] = json.loads(text)
    schemas["NewBandit"]["properties"]["dim"]["maximum"] = settings.max_dim
    schemas["NewDecision"]["properties"]["contexts"]["maxItems"] = settings.max_arms
    return schemas


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _errors(also: tuple[str, ...]) -> dict[str, Any]:
    error = {"application/json": {"schema": _ref("Error")}}
    shown = {"401", "403", "405", "503", *also}
    return {
        code: {"description": words, "content": error}
        for code, words in _ERRORS.items()
        if code in shown
    }


def _operation(
    summary: str,
    answers: dict[str, Any],
    *,
    body: dict[str, Any] | None = None,
    also: tuple[str, ...] = (),
) -> dict[str, Any]:
    described = {
        code: {"description": summary, "content": {"application/json": {"schema": schema}}}
        for code, schema in answers.items()
    }
    operation: dict[str, Any] = {"summary": summary, "responses": described | _errors(also)}
    if body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": body}},
        }
        operation["responses"] |= _errors((*also, "400", "408", "413", "422"))
    return operation


def _health(summary: str) -> dict[str, Any]:
    schema = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}
    content = {"application/json": {"schema": schema}}
    return {
        "summary": summary,
        "security": [],
        "responses": {
            "200": {"description": "Yes.", "content": content},
            "503": {"description": "No.", "content": content},
        },
    }
