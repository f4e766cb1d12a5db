"""Private UCB for arms without features (Mishra & Thakurta 2015): a noisy tree for each arm.

An arm's index is its noisy mean, the usual bonus for having been pulled seldom, and a term for the
privacy noise in the mean. The paper splits ε over the arms; a reward is in one arm's tree only, so
here every tree has the whole of it.
"""

from __future__ import annotations

from dpbandit.algorithms import presets
from dpbandit.design import Design
from dpbandit.options import Options, number_or_theory
from dpbandit.policies import INDEX
from dpbandit.privacy.noise import find_noise
from dpbandit.privacy.sensitivity import on_grid
from dpbandit.release import MAX_LEVELS, ArmTrees

DESCRIPTION = "UCB for arms without features (one-hot contexts), a Laplace tree per arm"
REFERENCE = "Mishra & Thakurta 2015"
CLAIM = "pure ε (GDP with noise='gaussian'), proven"
OPTIONS = ("privacy_bonus", "split_budget")
ONE_HOT = True  # contexts may only name arms

# Chosen on Bernoulli worlds of 10 arms, T = 10⁴ and 10⁵ (docs/privacy.md), like the design's alpha:
# UCB's own √(2 log t/n) explores more than it needs to; with much less of the privacy term the best
# arm is lost in some runs.
PRIVACY_BONUS = 0.75


def design(name: str, options: Options) -> Design:
    """The design; its options:

    `alpha` scales √(2 log t/n), in units of the rewards' width. `privacy_bonus` scales the term for
    the privacy noise in the mean, its tail at probability 1/t; 0 drops it, 'theory' is the paper's.
    alpha='theory' is the paper's whole index. `split_budget=True` gives each tree ε/K, as published.
    """
    noise = find_noise(options.noise or "laplace", ("laplace", "gaussian"))
    presets.check_plain_arms(options, name, "an arm's tree keeps clean sums")
    usual = "theory" if options.alpha == "theory" else PRIVACY_BONUS
    given = options.own("privacy_bonus", None)
    term = usual if given is None else number_or_theory("privacy_bonus", given)
    budget = noise.budget(options, ArmTrees.draws(1, options.horizon))
    # Trees that share a budget are like more levels of one tree.
    split = options.dim if options.own_flag("split_budget") else 1
    scales = noise.multipliers(budget, MAX_LEVELS) * noise.multiplier(1.0, split)
    one = on_grid(1.0, dim=1, norm=noise.norm, items=options.protects.items_per_move)
    release = ArmTrees(noise, options.horizon, one, budget, scales)
    return Design(
        learner="arms",
        settings={
            **release.core(),
            "published_term": term == "theory",
            "privacy_bonus": 0.0 if isinstance(term, str) else term,
            "failure": options.zeta,
        },
        release=release,
        noise=noise,
        policy=INDEX,
        claim=presets.claim(options, noise, budget, assumptions=presets.ONE_HOT),
        ledger=noise.ledger(budget),
        theory=1.0,
        one_hot=True,
    )
