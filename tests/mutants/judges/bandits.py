"""Bandits of every form, and the judges before whom each of them comes."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np

from judges.budgets import exact_delta
from judges.common import DELTA, DIM, EPSILON, JUDGES, ROUNDS, Judge, close
from judges.noises import Drawn, with_drawn

UNIT = {"dim": DIM, "epsilon": EPSILON, "delta": DELTA, "horizon": ROUNDS, "seed": 5}


AHEAD = {"horizon": None}


REWARDS = {"reward_range": (0.25, 1.75)}


LONGER = {"max_norm": 2.0, "ridge": 0.7}


USERS = {"unit": ("user", 2)}


PERSONS = {"unit": ("person", 2.5), "reward_range": (0.0, 1.25)}


KNOWN = {"public_contexts": "pool"}


PAIR = {"first_release": 2, "ratio": 1.3, "knee": 6.0}


WIDE = {"dim": 9}  # more than two vectors of the core hold


# name, options, and whether the exact cost attains the budget on the streams below.
BANDITS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "random": ("random", {}, False),
    "linucb": ("linucb", REWARDS, False),
    "linucb clipped": ("linucb", {"clip_rewards": True}, False),
    "linucb, forgetful": ("linucb", {"forget": 0.8, **LONGER}, False),
    "linucb perturbed": ("linucb", {"context_noise": 0.3}, False),
    "laplace": ("private-linucb", {}, True),
    "laplace, known": ("private-linucb", KNOWN, False),
    "laplace, users": ("private-linucb", {**USERS, **REWARDS}, False),
    "laplace, unknown horizon": ("private-linucb", AHEAD, False),
    "laplace-l2": ("private-linucb", {"noise": "laplace-l2", **LONGER}, True),
    "laplace, pan-private": ("private-linucb", {"pan_private": True, **AHEAD}, False),
    "published": ("private-linucb-published", {}, False),
    "published, unknown horizon": ("private-linucb-published", {**AHEAD, **USERS}, False),
    "gauss": ("tree-gauss", {**REWARDS, **LONGER}, True),
    "gauss, users": ("tree-gauss", {**USERS, **AHEAD}, False),
    "gauss, pan-private": ("tree-gauss", {"pan_private": True, **REWARDS}, False),
    "gauss, ellipsoid": ("tree-gauss", {"shape": "ellipsoid", **KNOWN, **REWARDS}, False),
    "gauss, instruments": ("tree-gauss", {"shape": "instruments", **KNOWN}, False),
    "gauss, perturbed": ("tree-gauss", {"context_noise": 0.3}, False),
    "gauss, theory": ("tree-gauss", {"alpha": "theory"}, True),
    "honaker": ("tree-gauss", {"honaker": True, **REWARDS}, True),
    "dgs": ("dgs", {**REWARDS, **LONGER}, False),
    "dgs, known": ("dgs", KNOWN, False),
    "dgs, laplace": ("dgs", {"noise": "laplace", **KNOWN, **AHEAD}, False),
    "dgs, laplace, ball": ("dgs", {"noise": "laplace"}, False),
    "dgs, users": ("dgs", USERS, False),
    "dgs published": ("dgs-published", {"smallest_eigenvalue": 0.2}, False),
    "dgs published, gauss": (
        "dgs-published",
        {"smallest_eigenvalue": 0.2, "noise": "gaussian", "form": "full", **AHEAD},
        False,
    ),
    "dgs figure": ("dgs-figure", {"printed_index": True}, False),
    "local": ("local", REWARDS, True),
    "local, gauss": ("local", {"noise": "gaussian", **USERS}, False),
    "toeplitz": ("toeplitz", REWARDS, False),
    "toeplitz, to the end": ("toeplitz", {"horizon": 16, **LONGER}, True),
    "toeplitz, unknown horizon": ("toeplitz", {**AHEAD, **LONGER}, False),
    "anytime": ("anytime", {"first_release": 2, "ratio": 1.3, "knee": 6.0, **REWARDS}, False),
    "anytime, known": (
        "anytime",
        {"first_release": 2, "ratio": 1.3, "window": 0.5, **KNOWN},
        False,
    ),
    "anytime, bayes": ("anytime", {"first_release": 3, "empirical_bayes": True, **USERS}, False),
    "anytime, life": ("anytime", {**PAIR, **REWARDS, "life": 1.6, "memories": ()}, False),
    "anytime, answers": ("anytime", {**PAIR, **REWARDS, "local": 5}, False),
    "anytime, answers, users": ("anytime", {**PAIR, "local": 7, "unit": ("user", 1)}, False),
    "anytime, blocks": ("anytime", {**PAIR, **WIDE, "local": "blocks"}, False),
    "anytime, never": ("anytime", {**PAIR, **REWARDS, "local": "never"}, False),
    "anytime, spread": ("anytime", {**PAIR, "unit": ("spread", 2.5), **AHEAD}, False),
    "anytime, persons": ("anytime", {**PAIR, **PERSONS, "rewards": "clicks"}, False),
    "gauss, persons": ("tree-gauss", PERSONS, False),
    "thompson": ("private-ts", {}, True),
    "episodes": ("adac-oful", REWARDS, True),
    "episodes, unknown horizon": ("adac-oful", {**AHEAD, "determinant_growth": 0.4}, True),
    "arms": ("private-ucb", REWARDS, True),
    "arms, gauss": ("private-ucb", {"noise": "gaussian", **AHEAD}, False),
    "arms, split": ("private-ucb", {"split_budget": True, "alpha": "theory", **USERS}, False),
    "batches": ("dp-klucb", {"first_release": 2, "ratio": 1.9, **REWARDS}, True),
    "batches, gauss": ("dp-klucb", {"noise": "gaussian", "first_release": 3, **AHEAD}, True),
    "batches, users": ("dp-klucb", {"epsilon": 9.0, "reward_variance": 0.2, **USERS}, False),
    "joint": ("joint", REWARDS, True),
    "joint, unknown horizon": ("joint", {**AHEAD, **LONGER}, False),
    "joint, users": ("joint", {**USERS, "reward_weight": 0.5}, False),
    "joint, wishart": ("joint", {"noise": "wishart", "horizon": 6}, False),
    "joint, theory": ("joint", {"alpha": "theory"}, True),
    "joint, centred": ("joint", {**REWARDS, "centre_rewards": True}, True),
    "joint, raised": ("joint", {**REWARDS, "shift": 0.0, "epsilon": 0.05}, True),
    "pair": ("anytime-joint", {**PAIR, **REWARDS}, False),
    "pair, longer": ("anytime-joint", {**PAIR, **LONGER, **USERS, "knee": 20.0}, False),
    "pair, known": ("anytime-joint", {**PAIR, **KNOWN, **AHEAD}, False),
    "pair, persons": (
        "anytime-joint",
        {**PAIR, "unit": ("person", 1.25), "reward_range": (0.0, 1.25), "window": 1.0},
        False,
    ),
    "arms, published": ("private-ucb", {"noise": "gaussian", "privacy_bonus": "theory"}, True),
    "wide laplace": ("private-linucb", WIDE, True),
    "wide gauss": ("tree-gauss", {**WIDE, **REWARDS, **AHEAD}, False),
    "wide honaker": ("tree-gauss", {**WIDE, **REWARDS, "honaker": True}, True),
    "wide gauss, pan-private": ("tree-gauss", {**WIDE, **REWARDS, "pan_private": True}, False),
    "wide ellipsoid": ("tree-gauss", {**WIDE, **REWARDS, **KNOWN, "shape": "ellipsoid"}, False),
    "wide dgs": ("dgs", {**WIDE, **REWARDS, **KNOWN, "noise": "laplace"}, False),
    "wide dgs, ball": ("dgs", {**WIDE, **REWARDS}, False),
    "wide toeplitz": ("toeplitz", {**WIDE, **REWARDS}, False),
    "wide anytime": ("anytime", {**WIDE, **REWARDS, "first_release": 2, "ratio": 1.3}, False),
    "wide pair": ("anytime-joint", {**WIDE, **PAIR, **REWARDS}, False),
    "wide joint": ("joint", {**WIDE, **REWARDS}, True),
    "wide episodes": ("adac-oful", {**WIDE, **REWARDS}, False),
    "wide arms": ("private-ucb", {**WIDE, "max_norm": 2.0}, True),
    "no noise": ("tree-gauss", {"epsilon": math.inf}, False),
    "no noise, laplace": ("private-linucb", {"epsilon": math.inf}, False),
    "no noise, pair": ("anytime-joint", {"epsilon": math.inf, **PAIR}, False),
    "no noise, joint": ("joint", {"epsilon": math.inf}, False),
    "no noise, anytime": ("anytime", {"epsilon": math.inf, "knee": 9.0, "first_release": 2}, False),
}


PROVEN = {"random": "none"}


def pool(dim: int = DIM) -> Any:
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(12, dim)) * np.array([1.0, 0.6, 0.3] * 3)[:dim]
    return rows / (
        np.linalg.norm(rows, axis=1, keepdims=True) * rng.uniform(1.0, 2.0, size=(12, 1))
    )


def made(label: str, **more: Any) -> Any:
    import dpbandit as dpb

    name, options, _attained = BANDITS[label]
    given = {**UNIT, **options, **more}
    if isinstance(given.get("public_contexts"), str):
        given["public_contexts"] = pool(given["dim"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dpb.make(name, **given)


def slates(bandit: Any, rounds: int) -> Any:
    rng = np.random.default_rng(9)
    if bandit.one_hot:
        return [np.eye(bandit.dim)[rng.permutation(bandit.dim)] for _ in range(rounds)]
    rows = pool(bandit.dim) * bandit.options.max_norm
    if bandit.options.own("local", "") == "blocks":  # features that no two arms share
        third = np.kron(np.eye(3), np.ones(bandit.dim // 3))
        return [rows[rng.choice(12, 3)] * third for _ in range(rounds)]
    return [np.ascontiguousarray(rows[rng.choice(12, 4, replace=False)]) for _ in range(rounds)]


def play(bandit: Any, rounds: int) -> Any:
    """Choose, be paid, learn. All that is public after every round."""
    rng, seen = np.random.default_rng(10), []
    low, high = bandit.options.reward_range
    for t, slate in enumerate(slates(bandit, rounds)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arm = bandit.select(slate)
            reward = float(rng.uniform(low - 0.5, high + 0.5))
            counted = bandit.options.protects.needs_user
            bandit.update(slate[arm], reward, **({"user": f"u{t % 7}"} if counted else {}))
        model = bandit.model()
        seen.append((arm, bandit.theta, model.view.matrix, bandit.spent.epsilon))
    return seen


def state_of(bandit: Any) -> Any:
    table = bandit.ledger.table()
    return [
        bandit.rounds,
        bandit.clipped,
        bandit.over_cap,
        str(table),
        str(bandit.claim),
        bandit.ledger.total,
    ]


def both_engines(label: str) -> Judge:
    def check() -> Any:
        rounds = min(UNIT["horizon"], BANDITS[label][1].get("horizon") or ROUNDS)  # type: ignore[call-overload]
        one, two = made(label, backend="reference"), made(label, backend="core")
        first, second = play(one, rounds), play(two, rounds)
        for a, b in zip(first, second, strict=True):
            assert a[0] == b[0], "another arm"
            # Without noise the filter's equations are nearly singular.
            rel, abs_ = (1e-2, 1e-3) if label == "no noise, anytime" else (1e-8, 1e-9)
            close(a[1], b[1], rel, abs_)
            close(a[2], b[2], rel, abs_)
            assert a[3] == b[3]
        assert state_of(one) == state_of(two)
        unit, visits = one.options.protects, np.bincount(np.arange(rounds) % 7)
        if not unit.needs_instruments:
            assert one.over_cap == np.maximum(visits - (unit.cap or rounds), 0).sum()
        return [np.array([row[1] for row in first]), [row[0] for row in first], state_of(one)]

    return check


def budget_of(claim: Any) -> float:
    """What its releases may cost together: ε, or the μ² that is worth ε and δ."""
    if claim.notion == "parallel":
        return mu_worth(claim.epsilon, claim.delta) ** 2
    return float(claim.mu**2 if claim.mu else claim.epsilon)


@functools.cache
def mu_worth(epsilon: float, delta: float) -> float:
    """The μ that costs δ at ε."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exact_delta(epsilon, middle) < delta else (low, middle)
    return high


def positions(bandit: Any, rounds: int) -> Any:
    together = min(bandit.options.protects.together(bandit.options.width), rounds)
    starts = sorted({0, 1, 7, rounds - together})
    return np.array(
        [range(s, s + together) for s in starts if s + together <= rounds], dtype=np.int64
    )


def exact_cost(label: str) -> Judge:
    """What changing a reward costs over all releases, exactly: `verify` on one short stream."""

    def check() -> Any:
        from dpbandit.auditor.frozen import allowed, freeze, opposed

        seen = []
        _name, options, attained = BANDITS[label]
        for backend in ("core", "reference"):
            bandit = made(label, backend=backend)
            rounds = min(16, options.get("horizon") or 16)
            rows = (
                np.full((rounds, bandit.dim), 1 / math.sqrt(bandit.dim)) * bandit.options.max_norm
            )
            frozen = freeze(bandit, opposed(bandit, allowed(bandit, rows)))
            claim = bandit.claim
            if claim.status == "proven" and claim.noise == "simulation" and claim.epsilon > 0:
                assert not frozen.uses_noise_twice
                worst = float(frozen.costs(positions(bandit, rounds)).max())
                budget = budget_of(claim)
                if bandit.noise.name != "wishart":
                    assert worst <= budget * (1 + 1e-9), f"{worst / budget} of the budget"
                    if attained:
                        assert worst >= budget * (1 - 1e-6), f"{worst / budget}: noise is wasted"
                seen.append(worst)
            seen.append(frozen.scales)
        close(np.asarray(seen[len(seen) // 2 - 1]), np.asarray(seen[-1]), 1e-12)
        if len(seen) == 4:
            close(seen[0], seen[2], 1e-6)
        return seen

    return check


def as_shipped(label: str) -> Judge:
    """The same through `update`, with noise from a source that is watched."""

    def check() -> Any:
        from dpbandit.auditor.frozen import allowed
        from dpbandit.auditor.verify import as_shipped as shipped

        bandit = made(label)
        rounds = min(6, BANDITS[label][1].get("horizon") or 6)
        rows = allowed(bandit, pool(bandit.dim)[:rounds] * bandit.options.max_norm)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cost, why = shipped(lambda: made(label), rows)
        claim = bandit.claim
        if claim.status == "proven" and bandit.noise.name != "wishart" and claim.epsilon > 0:
            assert cost <= budget_of(claim) * (1 + 1e-9), why
        return [cost, why]

    return check


def real_noise(label: str) -> Judge:
    """Without a seed: what the samplers are asked, and what is released of it."""

    def check() -> Any:
        def run(backend: str) -> Any:
            bandit = made(label, seed=None, backend=backend)
            bandit.use_keys({1: 11, 2: 12, 3: 0})
            seen = play(bandit, 9)
            assert bandit.claim.noise == ("none" if label == "linucb" else "real")
            assert not bandit.ledger.total > bandit.ledger.limit * (1 + 1e-12)
            asked = list(Drawn.asked)
            if bandit.claim.status == "proven":
                assert asked, "nothing was drawn"
            return [
                np.array([row[1] for row in seen]),
                asked,
                str(bandit.ledger.table()),
                bandit.spent.epsilon,
            ]

        one, two = with_drawn(lambda: run("reference")), with_drawn(lambda: run("core"))
        close(one[0], two[0], 1e-8, 1e-9)
        assert [(a[0], a[1], a[3]) for a in one[1]] == [(a[0], a[1], a[3]) for a in two[1]]
        close([a[2] for a in one[1]], [a[2] for a in two[1]], 1e-12)
        assert one[2:] == two[2:]
        return one

    return check


WATCHED = (
    "laplace",
    "gauss, users",
    "gauss, pan-private",
    "laplace, pan-private",
    "honaker",
    "dgs, known",
)


WATCHED += (
    "toeplitz",
    "anytime",
    "anytime, bayes",
    "anytime, answers",
    "anytime, answers, users",
    "anytime, blocks",
    "episodes",
    "arms, gauss",
    "joint, users",
    "local",
    "linucb",
    "pair",
)


WATCHED += ("anytime, spread", "anytime, persons", "gauss, persons", "pair, persons")


WATCHED += ("batches", "dgs, users", "arms, split", "laplace, users", "random", "thompson")


REAL = (
    "laplace",
    "gauss, users",
    "gauss, pan-private",
    "dgs",
    "toeplitz",
    "anytime",
    "episodes",
    "arms",
    "batches",
    "joint",
    "local",
    "linucb",
    "pair",
    "pair, persons",
    "anytime, spread",
    "anytime, life",
    "anytime, answers",
    "gauss, persons",
)


for each in BANDITS:
    JUDGES[f"both engines: {each}"] = both_engines(each)
    JUDGES[f"exact cost: {each}"] = exact_cost(each)


for each in WATCHED:
    JUDGES[f"as shipped: {each}"] = as_shipped(each)


for each in REAL:
    JUDGES[f"real noise: {each}"] = real_noise(each)
