"""Dynamic global sensitivity (Wang, Zhao & Wang 2022): tree noise on the parameter, which shrinks.

`dgs-published` is the paper's Algorithms 1 and 2: noise on the increments θ̂_e − θ̂_s, scaled by
Lemma 1. `dgs-figure` is the same with Δ_t = 1/t, the scale behind the published figures. `dgs` is the
sound form. An increment θ̂_e − θ̂_s moves with *every* earlier reward, not only with those of its node,
so all earlier rewards must pay for it. `dgs` therefore publishes, for each node, only the
contribution of the node's own rewards to θ̂_e, A_e⁻¹·Σ x·r over the node, with noise for the
sensitivity that the public A_e shows. Because A is public, sums of these give θ̂ back: θ^p_t =
A_t⁻¹ Σ_nodes A_e·(noisy node). Each reward is then in one node per level and pays nothing later
(docs/privacy.md).
"""

from __future__ import annotations

import math

from dpbandit.algorithms import bonus, presets
from dpbandit.algorithms.private_linucb import published_multipliers
from dpbandit.design import Design
from dpbandit.errors import OptionError
from dpbandit.options import Options
from dpbandit.privacy.accounting import mu_of
from dpbandit.privacy.claim import Claim, Status
from dpbandit.privacy.ledger import Ledger
from dpbandit.privacy.noise import find_noise
from dpbandit.privacy.sensitivity import on_grid
from dpbandit.release import Tree

DESCRIPTION = (
    "the paper's method made sound: tree noise on node contributions to θ, Δ from the public A_t"
)
REFERENCE = "after Wang, Zhao & Wang 2022; accounting ours"
CLAIM = "GDP (pure ε with noise='laplace'), proven"
OPTIONS = ("smallest_eigenvalue",)

PUBLISHED_DESCRIPTION = "the paper's Algorithms 1 and 2, Δ from Lemma 1"
PUBLISHED_REFERENCE = "Wang, Zhao & Wang 2022"
PUBLISHED_CLAIM = "(ε, δ) as published; not proven"
PUBLISHED_OPTIONS = ("smallest_eigenvalue", "form", "printed_index")
NOT_PROVEN = (
    "NOT PROVEN: every later node moves with an earlier reward too, and is not paid for",
    "NOT PROVEN: Laplace noise per coordinate needs the L1 sensitivity, up to √d times the L2 bound "
    "of Lemma 1",
    "NOT PROVEN: Lemma 1 holds with high probability over contexts, if they are diverse; that is "
    "not the δ of privacy",
    "NOT PROVEN: a reward is in up to ⌊log₂T⌋ + 1 nodes, not log₂T",
)

FIGURE_DESCRIPTION = "the paper's algorithm with Δ_t = 1/t, as behind its figures"
FIGURE_REFERENCE = "the figures of Wang, Zhao & Wang 2022"
FIGURE_CLAIM = "none: its true ε is hundreds of times the setting"
FIGURE_OPTIONS = ("printed_index", "smallest_eigenvalue")


WHOLE_CLICKS = "a reward below {0:g}, the largest, counts as 0: rewards are clicks or none"


def design(name: str, options: Options) -> Design:
    noise = find_noise(options.noise or "gaussian", ("gaussian", "laplace", "laplace-l2"))
    presets.refuse_pan_private(
        options,
        name,
        "the noise of a node depends on A at its end, so it cannot be there from the start",
    )
    presets.check_range(options)
    budget = noise.budget(options, Tree.draws(options.dim, options.horizon))
    width = on_grid(1.0, dim=options.dim, norm=noise.norm) * options.width
    # Each reward that differs may move a float release by its rounding: so few of a person's may.
    whole = () if options.protects.counts_are_public else (WHOLE_CLICKS.format(options.width),)
    release = Tree(noise, options.horizon, width, budget)
    return presets.ridge(
        options,
        "own",
        release,
        promise=presets.claim(options, noise, budget, assumptions=whole),
        reward_bits=0,
        theory=bonus.on_parameter(
            options,
            release,
            width_times_norm=width * options.max_norm,
            form="simplified",
            lemma_delta=options.zeta,
        ),
        lemma_delta=options.zeta,
        # Perturbed contexts are not the public ones: then the ball.
        public_set=options.public_contexts if options.context_noise == 0 else None,
    )


def published_design(name: str, options: Options) -> Design:
    """The paper's algorithm.

    `smallest_eigenvalue` is the paper's λ₀ (estimated from public_contexts if not given); `form`
    'simplified' or 'full' for λ'(t); `printed_index=True` scales a node by Δ at its start + 1, as
    line 6 of Algorithm 1 prints it.
    """
    form = options.own("form", "simplified")
    if form not in ("simplified", "full"):
        raise OptionError(f"form must be 'simplified' or 'full', not {form!r}")
    return _on_increments(name, options, form, "as-published", NOT_PROVEN)


def figure_design(name: str, options: Options) -> Design:
    """The scale behind the published figures."""
    words = (
        "Δ_t = 1/t is more than a hundred times below the true sensitivity: only to reproduce "
        "figures"
    )
    return _on_increments(name, options, "figure", "none", (words,))


def _on_increments(
    name: str, options: Options, form: str, status: Status, assumptions: tuple[str, ...]
) -> Design:
    noise = find_noise(options.noise or "laplace", ("laplace", "gaussian", "laplace-l2"))
    presets.refuse_pan_private(
        options,
        name,
        "an increment of θ̂ needs the clean moments, which such a form may not keep",
    )
    epsilon = options.need_epsilon() / options.moves_per_unit
    delta = options.need_delta()
    log_horizon = 1.0 if options.horizon is None else max(math.log2(options.horizon), 1.0)

    def scale(levels: float) -> float:
        if noise.currency == "epsilon":
            return levels / epsilon
        # The paper names Gaussian noise and no scale: each node gets the exact one for its share.
        return 1 / mu_of(epsilon=epsilon / levels, delta=delta / levels)

    reach = options.width * options.max_norm
    least = 1.0 if form == "figure" else bonus.smallest_eigenvalue(options, name)
    multipliers = published_multipliers(options, scale)
    release = Tree(noise, options.horizon, reach, epsilon, multipliers)
    lemma_delta = delta / log_horizon
    promise = Claim(
        unit=options.unit_in_words,
        notion="approximate" if status != "none" else "none",
        epsilon=options.need_epsilon(),
        delta=delta,
        mu=None,
        status=status if math.isfinite(epsilon) else "none",
        noise=presets.noise_kind(options),
        assumptions=(presets.clipped(options), presets.CONTEXTS_PUBLIC, *assumptions),
    )
    return presets.ridge(
        options,
        "increment",
        release,
        promise=promise,
        ledger=Ledger(limit=math.inf, currency=noise.currency),
        theory=bonus.on_parameter(
            options, release, width_times_norm=reach, form=form, lemma_delta=lemma_delta
        ),
        form=form,
        smallest_eigenvalue=least,
        lemma_delta=lemma_delta,
        printed_index=options.own_flag("printed_index"),
    )
