"""The request for a new bandit, and the bandit made from it. Imports the learner's code, so it is
used only when a bandit is made and by the learner, never for a decision.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from dpbandit.encoder import Encoder
from dpbandit.errors import DpbanditError, OptionError, PrivacyWarning, SaveError
from dpbandit.release.local import NEVER
from dpbandit.service import measure

if TYPE_CHECKING:
    from dpbandit.bandit import Bandit

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
DEFAULT_WINDOW = 1800.0
LONGEST_WINDOW = 90 * 86_400.0
MOST_REWARDS_OF_A_USER = 1_000_000

# Options that would break what the service promises, and why.
REFUSED = {
    "seed": "a seed means simulated noise, which protects nobody: only real noise is served",
    "pan_private": "the store keeps rewards until they are learned, so pan-privacy is impossible",
    "backend": "the service chooses the engine",
    "context_noise": "the learning process perturbs contexts, but here another process ranks",
}

# Of a shadow or a holdout: what part of the budget tells what it is worth, and how often.
MEASURE_SHARE, LEAST_SHARE = 0.1, 0.001
MEASURE_EVERY, MOST_EVERY = 1_000, 1_000_000
MOST_HOLDOUT = 0.5

GIVEN_APART = ("dim", "epsilon", "delta", "horizon")


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/bandits`."""

    name: str
    algorithm: str
    reward_range: tuple[float, float]
    dim: int | None = None
    encoder: dict[str, Any] | None = None
    epsilon: float | None = None
    delta: float | None = None
    reward_window: float = DEFAULT_WINDOW
    default_reward: float | None = None
    horizon: int | None = None
    unit: str | tuple[str, int | float] = "reward"
    shadow: bool = False
    holdout: float = 0.0
    measure_share: float | None = None
    measure_every: int | None = None
    options: dict[str, Any] = {}


def normalised(request: Request, *, max_dim: int) -> dict[str, Any]:
    """The request with every default filled in, so that asking twice can be recognised."""
    if not NAME.match(request.name):
        raise OptionError(
            "a name is 1 to 64 letters, digits, dots, dashes and underscores, the first a letter "
            "or digit"
        )
    dim = request.dim
    if request.encoder is not None:
        columns = encoder_of(request.encoder).dim
        if dim not in (None, columns):
            raise OptionError(f"dim is {dim}, and the encoder has {columns} columns")
        dim = columns
    if dim is None:
        raise OptionError("give dim, the number of features of a context, or an encoder")
    if not 1 <= dim <= max_dim:
        raise OptionError(f"dim must lie between 1 and {max_dim}, the limit of this service")
    if not 0 < request.reward_window <= LONGEST_WINDOW:
        raise OptionError(f"reward_window must lie between 0 and {LONGEST_WINDOW:,.0f} seconds")
    kind, most = (request.unit, 1) if isinstance(request.unit, str) else request.unit
    if kind == "user" and not 1 <= most <= MOST_REWARDS_OF_A_USER:
        raise OptionError(f"a user's rewards number between 1 and {MOST_REWARDS_OF_A_USER:,}")
    if kind == "spread":
        raise OptionError("unit 'spread' cannot be served: the store counts users by numbers alone")
    low, high = request.reward_range
    default = low if request.default_reward is None else request.default_reward
    if not low <= default <= high:
        raise OptionError("default_reward must lie within reward_range")
    for name, why in REFUSED.items():
        given = request.options.get(name)
        if given or (name == "seed" and given is not None):
            raise OptionError(f"option {name!r} cannot be served: {why}")
    own = set(msgspec.structs.asdict(request)) & set(request.options)
    if own:
        raise OptionError(f"{min(own)!r} does not belong into options: give it beside them")
    given = msgspec.structs.asdict(request)
    if request.encoder is None:  # as it was before there were any
        del given["encoder"]
    measured = _measured(request)
    for name in ("shadow", "holdout", "measure_share", "measure_every"):
        if not measured:
            del given[name]
    given |= measured
    return given | {
        "dim": dim,
        "default_reward": default,
        "reward_range": [low, high],
        "unit": request.unit if isinstance(request.unit, str) else list(request.unit),
        "options": {k: v for k, v in request.options.items() if k not in REFUSED and v is not None},
    }


def _measured(request: Request) -> dict[str, Any]:
    """Settings of a shadow or a holdout; none if there is neither."""
    share, every = request.measure_share, request.measure_every
    if not request.shadow and not request.holdout:
        if share is not None or every is not None:
            raise OptionError("measure_share and measure_every are for a shadow or a holdout")
        return {}
    if not 0 <= request.holdout <= MOST_HOLDOUT:
        raise OptionError(f"holdout must be a share of the decisions, from 0 to {MOST_HOLDOUT:g}")
    share = MEASURE_SHARE if share is None else share
    every = MEASURE_EVERY if every is None else every
    if not LEAST_SHARE <= share <= 1 - LEAST_SHARE:
        raise OptionError(
            f"measure_share is a part of the budget, from {LEAST_SHARE:g} to {1 - LEAST_SHARE:g}"
        )
    if not 1 <= every <= MOST_EVERY:
        raise OptionError(f"measure_every must be a number of rounds, from 1 to {MOST_EVERY:,}")
    return {"measure_share": share, "measure_every": every}


def encoder_of(record: dict[str, Any]) -> Encoder:
    """The encoder of a config."""
    try:
        return Encoder.from_record(record)
    except SaveError as error:
        raise OptionError(str(error)) from None


def canonical(config: dict[str, Any]) -> str:
    """A config as the store keeps it. Megabytes of contexts may be in it, and while they are
    written nobody else runs: not with `json`, which takes ten times as long."""
    return msgspec.json.encode(config, order="deterministic").decode()


def build(config: dict[str, Any]) -> Bandit:
    """The bandit itself, with real noise. A part of its budget is kept back for a shadow or a
    holdout."""
    if not measure.wanted(config):
        return made(config)
    bandit = made_to_measure(config)
    rest = measure.set_aside(bandit.claim, config["measure_share"], delta=config["delta"])
    return made(config | rest)


def made_to_measure(config: dict[str, Any]) -> Bandit:
    """One with the whole budget, all but what a shadow's or a holdout's grids may take of δ: that
    it can be made is part of the proof that the learner and its measurement fit together."""
    bandit = made(config | measure.without_grids(config["delta"]))
    if bandit.contexts_are_private:
        raise OptionError(
            f"{config['algorithm']!r} protects contexts, but which rounds count for a shadow or a "
            "holdout would reveal them: choose an algorithm with public contexts"
        )
    return bandit


def made(config: dict[str, Any]) -> Bandit:
    from dpbandit.algorithms.registry import construct_with_encoder, find

    algorithm = find(config["algorithm"])
    if algorithm.registered_by_user:
        raise OptionError(
            f"{config['algorithm']!r} was registered by a program: only built-in algorithms are "
            "served"
        )
    unit = config["unit"] if isinstance(config["unit"], str) else tuple(config["unit"])
    options = config["options"] | {name: config[name] for name in GIVEN_APART}
    options |= {"reward_range": tuple(config["reward_range"]), "unit": unit}
    if (
        "local" in algorithm.own_options
    ):  # its learner sees no slates, which would begin a local phase
        options = {"local": NEVER, **options}
    if config.get("encoder") is not None:
        options["encoder"] = encoder_of(config["encoder"])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            bandit: Bandit = construct_with_encoder(config["algorithm"], options)
            return bandit
    except DpbanditError:
        raise
    except (ArithmeticError, ValueError, TypeError, MemoryError, LookupError):
        raise OptionError(
            "these options make no bandit: the documentation lists what each may be"
        ) from None


def draft(config: dict[str, Any], *, allow_unproven: bool) -> Bandit:
    """A new bandit that may be served, or an error that says why not."""
    bandit = build(config)
    if bandit.claim.status != "proven" and not allow_unproven:
        raise OptionError(
            f"{config['algorithm']!r} at these settings has no proven claim (status: "
            f"{bandit.claim.status}); this service serves proven ones only"
        )
    return bandit


def records(bandit: Bandit, config: dict[str, Any]) -> dict[str, Any]:
    """What the store keeps of a new bandit."""
    from dpbandit.saving import pack

    claim, measured = bandit.claim, None
    if measure.wanted(config):
        asked = {"epsilon": config["epsilon"], "delta": config["delta"] or 0.0}
        whole = replace(claim, **asked)
        measured = measure.measure_for(
            bandit, whole, every=config["measure_every"], share=config["measure_share"]
        )
        claim = measure.with_measure(claim, whole)
    return {
        "identity": bandit.identity,
        "claim": claim.to_dict() | {"words": str(claim)},
        "model": json.dumps(bandit.model().to_record()),
        "privacy": json.dumps(privacy_record(bandit, measured)),
        "state": pack(bandit),
        "measure": None if measured is None else measured.to_text(),
    }


def privacy_record(bandit: Bandit, measured: measure.Measure | None = None) -> dict[str, Any]:
    """The public account of what was paid, and which memory acts (None: all that was learned).

    No reward decides any number in it but the memory, and that one through releases alone.
    """
    spent, ledger = bandit.spent, bandit.ledger
    whole, total, more = ledger.limit, ledger.total, {}
    if measured is not None:
        paid = measured.cost if measured.releases else 0.0
        whole, total = whole + measured.cost, total + paid
        spent = measure.spent_with(spent, paid, bandit.options.moves_per_unit)
        more = {"measured": measured.public()}
    limit = whole if math.isfinite(whole) else None
    return {
        "spent": {"epsilon": finite(spent.epsilon), "delta": spent.delta, "mu": spent.mu},
        "remaining": {
            "currency": ledger.currency,
            "limit": limit,
            "left": finite(max(whole - total, 0.0)),
            "fraction": None if not limit else max(0.0, 1 - total / limit),
        },
        "releases": ledger.releases,
        **more,
        "memory": finite(bandit.memory),
        "ledger": [
            {**row, "cost": finite(row["cost"]), "total": finite(row["total"])}
            for row in [*ledger.table(), *measure.row_of(measured, ledger.currency, total)]
        ],
    }


def finite(number: float) -> float | None:
    """JSON has no infinity."""
    return number if math.isfinite(number) else None
