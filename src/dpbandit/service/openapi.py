"""Every endpoint, declared once: its handler, the roles it allows, and its description (OpenAPI
3.1). The schemas are in `static/schemas.json`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from dpbandit import __version__
from dpbandit.service import pages, personalizer, rounds
from dpbandit.service.answers import JSON, Answer, Receive, encode
from dpbandit.service.keys import ROLES
from dpbandit.service.metrics import ERASURE
from dpbandit.service.settings import Settings

if TYPE_CHECKING:
    from dpbandit.service.api import App

# (application, bandit's name, key, receive) → answer
Handler = Callable[["App", str, str, Receive], Awaitable[Answer]]

_ERRORS = {
    400: "Not JSON.",
    401: "No valid key.",
    403: "The key's role may not do this.",
    404: "Not found.",
    405: "Another method is needed.",
    408: "The body did not come in time.",
    409: "It conflicts with existing data.",
    413: "Larger than this service allows.",
    422: "JSON of the wrong shape.",
    429: "Too many requests without a valid key: try again.",
    503: "The store cannot be reached, or too many requests wait: try again.",
}
_NAMED: dict[str, Any] = {
    "name": "name",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
}

_USER: dict[str, Any] = {
    "name": "user",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1, "maxLength": 256},
}


@dataclass(frozen=True)
class Route:
    """One endpoint with one method. The handler's docstring is its description."""

    action: str  # in metrics and the access log
    handler: Handler
    answer: str | dict[str, Any] | None  # a schema, or the name of one; None: no body
    body: str | dict[str, Any] | None = None
    statuses: tuple[int, ...] = (200,)
    roles: tuple[str, ...] = ROLES
    refusal: str = ""  # what a key of another role is told
    kind: str = "application/json"
    more: tuple[int, ...] = ()  # errors besides those that the path and the body bring
    error: str = "Error"  # the schema of a refusal

    def describe(self, path: str) -> dict[str, Any]:
        """As OpenAPI has it."""
        words = " ".join((self.handler.__doc__ or "").split())
        shown = {401, 403, 405, 429, 503, *((404,) if "{name}" in path else ()), *self.more}
        described: dict[str, Any] = {"summary": words}
        if self.body is not None:
            shown |= {400, 408, 409, 413, 422}
            described["requestBody"] = {"required": True, **_content(self.body)}
        good = {"description": words}
        good |= {} if self.answer is None else _content(self.answer, self.kind)
        described["responses"] = dict.fromkeys(map(str, self.statuses), good) | {
            str(code): {"description": why, **_content(self.error)}
            for code, why in _ERRORS.items()
            if code in shown
        }
        return described


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(schema: str | dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {"content": {kind: {"schema": _ref(schema) if isinstance(schema, str) else schema}}}


async def openapi(app: App, name: str, key: str, receive: Receive) -> Answer:
    """This document."""
    return 200, JSON, encode(document(app.settings))


def _one_or_many(one: str, many: str) -> dict[str, Any]:
    return {"anyOf": [_ref(one), {"type": "array", "items": _ref(many)}]}


_DELETED = {"type": "object", "properties": {"status": {"type": "string"}}}
_ERASED = {
    "type": "object",
    "required": ["status", "decisions"],
    "properties": {"status": {"type": "string"}, "decisions": {"type": "integer", "minimum": 0}},
}
_EVENT: dict[str, Any] = {
    "name": "event",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1, "maxLength": 256},
}


def _personalizer(
    action: str,
    handler: Handler,
    body: str | dict[str, Any] | None,
    answer: str | None = None,
) -> dict[str, Route]:
    """One of the calls of Azure Personalizer's clients."""
    reports = action == "rewards"
    return {
        "POST": Route(
            action,
            handler,
            answer,
            body,
            statuses=(204,) if answer is None else (201,),
            roles=_REWARD if reports else _RANK,
            refusal=_RANKS_ONLY if reports else _REPORTS_ONLY,
            more=(400, 404, 409),
            error="PersonalizerError",
        )
    }


_ADMIN, _RANK, _REWARD = ("admin",), ("rank", "app", "admin"), ("reward", "app", "admin")
_REPORTS_ONLY = "this key may report rewards, not ask for decisions"
_RANKS_ONLY = "this key may ask for decisions, not report rewards"

_CALLS = "/v1/bandits/{name}/personalizer/"

# path → method → route
ROUTES: dict[str, dict[str, Route]] = {
    "/v1/bandits": {
        "GET": Route("list bandits", pages.bandits, "Bandits"),
        "POST": Route("create bandit", pages.create, "Bandit", "NewBandit", (201, 200), _ADMIN),
    },
    "/v1/bandits/{name}": {
        "GET": Route("show bandit", pages.bandit, "Bandit"),
        "DELETE": Route("delete bandit", pages.delete, _DELETED, roles=_ADMIN),
    },
    "/v1/bandits/{name}/live": {
        "POST": Route("go live", pages.go_live, "Bandit", roles=_ADMIN, more=(409,)),
    },
    "/v1/bandits/{name}/decisions": {
        "POST": Route(
            "decisions",
            rounds.decide,
            _one_or_many("Decision", "DecisionOrError"),
            _one_or_many("NewDecision", "NewDecision"),
            statuses=(201, 200),
            roles=_RANK,
            refusal=_REPORTS_ONLY,
        ),
    },
    "/v1/bandits/{name}/rewards": {
        "POST": Route(
            "rewards",
            rounds.reward,
            _one_or_many("RewardStatus", "RewardStatusOf"),
            _one_or_many("Reward", "Reward"),
            roles=_REWARD,
            refusal=_RANKS_ONLY,
        ),
    },
    "/v1/bandits/{name}/users/{user}": {
        "DELETE": Route(ERASURE, pages.erase_user, _ERASED, roles=_ADMIN, more=(422,)),
    },
    "/v1/bandits/{name}/privacy": {"GET": Route("show privacy", pages.privacy, "Privacy")},
    "/v1/bandits/{name}/releases": {"GET": Route("show releases", pages.releases, "Releases")},
    _CALLS + "rank": _personalizer(
        "decisions", personalizer.rank, "PersonalizerRank", "PersonalizerRanked"
    ),
    _CALLS + "events/{event}/reward": _personalizer(
        "rewards", personalizer.reward, "PersonalizerReward"
    ),
    _CALLS + "events/{event}/activate": _personalizer("activations", personalizer.activate, None),
    _CALLS + "multislot/rank": _personalizer(
        "decisions", personalizer.rank_slots, "PersonalizerSlotsRank", "PersonalizerSlotsRanked"
    ),
    _CALLS + "multislot/events/{event}/reward": _personalizer(
        "rewards", personalizer.reward_slots, "PersonalizerSlotsReward"
    ),
    _CALLS + "multislot/events/{event}/activate": _personalizer(
        "activations", personalizer.activate_slots, None
    ),
    "/v1/privacy": {"GET": Route("show total privacy", pages.total, "Total")},
    "/metrics": {"GET": Route("metrics", pages.metrics, {"type": "string"}, kind="text/plain")},
    "/openapi.json": {"GET": Route("openapi", openapi, {"type": "object"})},
}


def _parameters(path: str) -> dict[str, Any]:
    named = [
        parameter for parameter in (_NAMED, _USER, _EVENT) if f"{{{parameter['name']}}}" in path
    ]
    return {"parameters": named} if named else {}


def document(settings: Settings) -> dict[str, Any]:
    """The whole description, with the limits of this service."""
    text = (files("dpbandit.service") / "static" / "schemas.json").read_text("utf-8")
    schemas: dict[str, Any] = json.loads(text)
    schemas["NewBandit"]["properties"]["dim"]["maximum"] = settings.max_dim
    schemas["NewDecision"]["properties"]["contexts"]["maxItems"] = settings.max_arms
    paths: dict[str, Any] = {
        path: _parameters(path)
        | {method.lower(): route.describe(path) for method, route in methods.items()}
        for path, methods in ROUTES.items()
    }
    for what, most in (("rewards", settings.max_rewards), ("decisions", settings.max_decisions)):
        asked = paths[f"/v1/bandits/{{name}}/{what}"]["post"]["requestBody"]
        # A copy: what is declared above is every service's.
        schema = asked["content"]["application/json"]["schema"]
        one, many = schema["anyOf"]
        limited = {"anyOf": [one, many | {"maxItems": most}]}
        asked["content"] = {"application/json": {"schema": limited}}
    description = (
        "Private decisions over HTTP: ask for a decision, report its reward later. No answer ever "
        "shows a reward, a clean statistic, or noise."
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "dpbandit", "version": __version__, "description": description},
        "security": [{"key": []}],
        "paths": paths
        | {
            "/healthz": {"get": _health("The process runs.")},
            "/readyz": {
                "get": _health(
                    "The store can be read and written, and all background work continues."
                )
            },
        },
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
        },
    }


def _health(summary: str) -> dict[str, Any]:
    schema = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}
    answers = {"200": "Yes.", "503": "No."}
    responses = {code: {"description": says, **_content(schema)} for code, says in answers.items()}
    return {"summary": summary, "security": [], "responses": responses}
