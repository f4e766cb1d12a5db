"""What `dpb.verify` computes: the exact joint cost of what ships, over what was asked for."""

from __future__ import annotations

import warnings
from typing import Any

import dpbandit as dpb

ROUNDS, DIM = 256, 4
PUBLISHED: dict[str, Any] = {"epsilon": 2.0, "delta": 0.1}
PROVEN: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5}
PERSON: dict[str, Any] = {"unit": ("person", 1), "reward_range": (0.0, 1.0)}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "dgs-figure": ("dgs-figure", PUBLISHED),
    "dgs-published": ("dgs-published", PUBLISHED),
    "private-linucb-published": ("private-linucb-published", PUBLISHED),
    "dgs": ("dgs", PROVEN),
    "tree-gauss": ("tree-gauss", PROVEN),
    "joint": ("joint", PROVEN),
    "anytime": ("anytime", PROVEN),
    "anytime, a person": ("anytime", {**PROVEN, **PERSON}),
    "anytime-joint": ("anytime-joint", PROVEN),
    "anytime-joint, a person": ("anytime-joint", {**PROVEN, **PERSON}),
}
QUICK = ("dgs-figure", "dgs-published", "dgs")  # a second each


def everything() -> dict[str, Any]:
    return {"horizon": ROUNDS, "dim": DIM, "rows": {name: case(name) for name in CASES}}


def case(name: str) -> dict[str, Any]:
    """The worst of all streams of `verify` but the searched ones."""
    algorithm, given = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpb.errors.PrivacyWarning)
        found = dpb.verify(algorithm, horizon=ROUNDS, dim=DIM, tries=0, **given)
    simulated = next(one for one in found.cases if one.contexts == "the paper's simulation")
    return {
        "status": found.claim.status,
        "currency": found.currency,
        "holds": found.holds,
        "ratio": found.worst.ratio,
        "simulation": simulated.ratio,
    }
