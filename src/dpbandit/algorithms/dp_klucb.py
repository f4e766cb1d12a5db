"""DP-KL-UCB for arms without features (Azize et al. 2025): sums of disjoint batches, released once
each.

Nothing is forgotten and no budget is split: an arm's mean combines all its batches, and a reward is
in one of them. The index is KL-UCB's, with rewards and noise in one Chernoff bound. So noise costs
next to nothing once it is small beside the rewards' own variance.
"""

from __future__ import annotations

from dpbandit.algorithms import presets
from dpbandit.design import Design
from dpbandit.errors import OptionError
from dpbandit.options import Options, positive, whole
from dpbandit.policies import INDEX
from dpbandit.privacy.noise import find_noise
from dpbandit.privacy.sensitivity import on_grid
from dpbandit.release import ArmBatches

DESCRIPTION = "KL-UCB for arms without features (one-hot contexts), each batch's sum released once"
REFERENCE = "Azize, Wu, Honda, Orabona, Ito & Basu 2025; the index is this project's"
CLAIM = "pure ε (GDP with noise='gaussian'), proven"
OPTIONS = ("first_release", "ratio", "reward_variance")
ONE_HOT = True  # contexts may only name arms

# Chosen on Bernoulli worlds of 10 arms, T = 10⁴ and 10⁵ (docs/privacy.md): the first batch in
# standard deviations of the noise on its sum, and how much pulls grow from batch to batch.
FIRST, RATIO = 8.0, 1.25


def design(name: str, options: Options) -> Design:
    """The design; its options:

    `alpha` scales the logarithm in the index; 'theory' is 1, as is the default. `first_release` is
    the length of an arm's first and shortest batch; `ratio` is the growth of its pulls from batch
    to batch. `reward_variance` is a public guess: rewards are then treated as Gaussian with this
    variance. Without it the index is valid for all rewards in the range.
    """
    noise = find_noise(options.noise or "laplace", ("laplace", "gaussian"))
    presets.check_plain_arms(options, name, "an arm's batch keeps its clean sum")
    ratio = positive("ratio", options.own("ratio", RATIO))
    if not 1 < ratio <= 10:
        raise OptionError(f"ratio must lie above 1, and at most 10, not {ratio!r}")
    variance = options.own("reward_variance", None)
    budget = noise.budget(options, ArmBatches.draws(1, options.horizon))
    one = on_grid(1.0, dim=1, norm=noise.norm, items=options.protects.items_per_move)
    usual = round(FIRST * noise.standard_deviation() * noise.multiplier(budget, 1))
    first = options.own("first_release", None)
    first = max(1, usual) if first is None else whole("first_release", first, least=1)
    release = ArmBatches(noise, options.horizon, one, budget, first=first, ratio=ratio)
    guess = 0.0 if variance is None else positive("reward_variance", variance)
    return Design(
        learner="batches",
        settings={**release.core(), "reward_variance": guess},
        release=release,
        noise=noise,
        policy=INDEX,
        claim=presets.claim(options, noise, budget, assumptions=presets.ONE_HOT),
        ledger=noise.ledger(budget),
        theory=1.0,
        alpha=1.0,
        one_hot=True,
    )
