"""Dynamic global sensitivity (Wang, Zhao & Wang 2022): tree noise on the parameter, shrinking as the model converges.

`dgs-published` is the paper's Algorithms 1 and 2: noise on the increments θ̂_e − θ̂_s, scaled by Lemma 1.
`dgs-figure` is the same with Δ_t = 1/t, the scale behind the published figures.
`dgs` is the sound form. An increment θ̂_e − θ̂_s moves with *every* earlier reward, not only with those of its node, so
increments must be paid for by all earlier rewards. `dgs` therefore publishes, for each node, only what the node's own
rewards contribute to θ̂_e, namely A_e⁻¹·Σ x r over the node, with noise for the sensitivity that the public A_e shows.
Sums of these give θ̂ back, because A is public: θ^p_t = A_t⁻¹ Σ_nodes A_e·(noisy node). Each reward is then in one node
per level and pays nothing later (docs/privacy.md).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpbandit.bandits import presets, rounds
from dpbandit.bandits.linear import LinearBandit
from dpbandit.bandits.options import Options, positive
from dpbandit.bandits.private_linucb import published_multipliers
from dpbandit.budget import Claim, Ledger, mu_of
from dpbandit.errors import OptionError
from dpbandit.noise import CODES, check_noise
from dpbandit.sensitivity import FORMS, estimate_bounds

DESCRIPTION = "the paper's method made sound: tree noise on node contributions to θ, Δ from the public A_t"
REFERENCE = "after Wang, Zhao & Wang 2022; accounting ours"
CLAIM = "GDP (pure ε with noise='laplace'), proven"
OWN = ("smallest_eigenvalue",)

PUBLISHED_DESCRIPTION = "the paper's Algorithms 1 and 2, Δ from Lemma 1"
PUBLISHED_REFERENCE = "Wang, Zhao & Wang 2022"
PUBLISHED_CLAIM = "(ε, δ) as published; not proven"
PUBLISHED_OWN = ("smallest_eigenvalue", "form", "printed_index")
NOT_PROVEN = (
    "NOT PROVEN: every later node moves with an earlier reward too, and is not paid for",
    "NOT PROVEN: Laplace noise per coordinate needs the L1 sensitivity, up to √d times the L2 bound of Lemma 1",
    "NOT PROVEN: Lemma 1 holds with high probability over contexts, if they are diverse; that is not the δ of privacy",
    "NOT PROVEN: a reward is in up to ⌊log₂T⌋ + 1 nodes, not log₂T",
)

FIGURE_DESCRIPTION = "the same with Δ_t = 1/t, as behind the paper's figures"
FIGURE_REFERENCE = "the figures of Wang, Zhao & Wang 2022"
FIGURE_CLAIM = "none: its true ε is hundreds of times the setting"
FIGURE_OWN = ("printed_index", "smallest_eigenvalue")


def make(name: str, options: Options) -> LinearBandit:
    noise = check_noise(options.noise or "gaussian", ("gaussian", "laplace", "laplace-l2"))
    presets.refuse_pan_private(
        options, name, "the noise of a node depends on A at its end, so it cannot be there from the start"
    )
    budget = presets.budget_per_reward(options, noise)
    # Perturbed contexts are not the public ones: then the ball.
    known = options.public_contexts if options.context_noise == 0 else None
    plan = presets.plan(
        options,
        rounds.OWN,
        noise=CODES[noise],
        sensitivity=options.width * (1 + presets.rounding(options)),
        lemma_delta=options.zeta,  # for alpha="theory" alone
        multipliers=presets.shared_by_levels(budget, noise),
        arms=np.empty((0, options.dim)) if known is None else known,
    )
    claim = presets.claim(options, noise, budget, "proven", ())
    return LinearBandit(name, options, plan, claim, presets.ledger(noise, budget))


def make_published(name: str, options: Options) -> LinearBandit:
    """`smallest_eigenvalue` is the paper's λ₀ (estimated from public_contexts if not given); `form` 'simplified' or
    'full' for λ'(t); `printed_index=True` scales a node by Δ at its start + 1, as line 6 of Algorithm 1 prints it."""
    form = options.take("form", "simplified")
    if form not in ("simplified", "full"):
        raise OptionError(f"form must be 'simplified' or 'full', not {form!r}")
    return _on_increments(name, options, form, "as-published", NOT_PROVEN)


def make_figure(name: str, options: Options) -> LinearBandit:
    return _on_increments(
        name,
        options,
        "figure",
        "none",
        ("Δ_t = 1/t is more than a hundred times below the true sensitivity: only to reproduce figures",),
    )


def _on_increments(name: str, options: Options, form: str, status: Any, assumptions: tuple[str, ...]) -> LinearBandit:
    noise = check_noise(options.noise or "laplace", ("laplace", "gaussian", "laplace-l2"))
    presets.refuse_pan_private(
        options, name, "an increment of θ̂ needs the clean moments, which such a form may not keep"
    )
    share = options.rewards_per_unit
    epsilon, delta = options.need_epsilon() / share, options.need_delta()
    log_horizon = 1.0 if options.horizon is None else max(math.log2(options.horizon), 1.0)
    if noise == "gaussian":
        multipliers = _gaussian_multipliers(options, epsilon, delta)
    else:
        multipliers = published_multipliers(options, epsilon)
    plan = presets.plan(
        options,
        rounds.INCREMENT,
        noise=CODES[noise],
        sensitivity=options.width * options.max_norm,
        multipliers=multipliers,
        form=FORMS[form],
        smallest_eigenvalue=1.0 if form == "figure" else _smallest_eigenvalue(options),
        lemma_delta=delta / log_horizon,
        printed_index=bool(options.take("printed_index", False)),
    )
    claim = Claim(
        unit=options.unit_in_words,
        notion="approximate" if status != "none" else "none",
        epsilon=options.need_epsilon(),
        delta=delta,
        mu=None,
        status=status if math.isfinite(epsilon) else "none",
        noise="real" if options.seed is None else "simulation",
        assumptions=(
            presets.CLIPPED.format(options.reward_range, options.width),
            presets.CONTEXTS_PUBLIC,
            *assumptions,
        ),
    )
    currency = "mu²" if noise == "gaussian" else "epsilon"
    return LinearBandit(name, options, plan, claim, Ledger(limit=math.inf, currency=currency))


def _gaussian_multipliers(
    options: Options, epsilon: float, delta: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The paper names Gaussian noise and gives no scale: each node gets the exact one for (ε, δ) over the levels."""
    if math.isinf(epsilon):
        return presets.shared_by_levels(math.inf, "gaussian")
    if options.horizon is not None:
        levels = max(math.log2(options.horizon), 1.0)
        return np.full(
            len(presets.shared_by_levels(1.0, "gaussian")),
            1 / mu_of(epsilon=epsilon / levels, delta=delta / levels),
        )
    table = presets.shared_by_levels(1.0, "gaussian")
    return np.array([0.0] + [1 / mu_of(epsilon=epsilon / n, delta=delta / n) for n in range(1, len(table))])


def _smallest_eigenvalue(options: Options) -> float:
    given = options.take("smallest_eigenvalue", None)
    if given is None:
        if options.public_contexts is None:
            raise OptionError(
                "dgs-published needs smallest_eigenvalue (the paper's λ₀), or public_contexts to estimate it from"
            )
        given = estimate_bounds(options.public_contexts)[1]
        if given <= 0:
            raise OptionError("public_contexts do not span all dimensions: λ₀ = 0, so Lemma 1 says nothing")
    return positive("smallest_eigenvalue", given)
