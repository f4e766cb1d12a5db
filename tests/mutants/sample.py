"""The mutants that `make test` tries: one for each way in which noise, counts or charges go wrong.

Each line says what would be wrong, the function, its text before and after (as `runner.py` prints
them), and the judge that must refuse it. All mutants run in `make test-all`.
"""

from __future__ import annotations

from typing import NamedTuple


class Wrong(NamedTuple):
    what: str
    function: str  # module:function
    before: str
    after: str
    judge: str


SAMPLE = [
    Wrong(
        "scale: levels share the budget",
        "privacy.noises.gaussian:Gaussian.multiplier",
        "math.sqrt(levels) / budget",
        "math.sqrt(levels) * budget",
        "noises_price_what_they_say",
    ),
    Wrong(
        "scale: what a node needs",
        "learners.learner:Learner.scale",
        "float(self.spec['multipliers'][levels]) * float(self.spec['sensitivity'])",
        "float(self.spec['multipliers'][levels]) / float(self.spec['sensitivity'])",
        "exact cost: laplace",
    ),
    Wrong(
        "norm: shifts of both signs cancel",
        "privacy.noises.laplace:Laplace.cost",
        "np.abs(shift)",
        "shift",
        "noises_price_what_they_say",
    ),
    Wrong(
        "scale: a person's pair against none, not against another",
        "algorithms.joint:_release",
        "math.sqrt(2) * (1 + _margin(options))",
        "math.sqrt(2) / (1 + _margin(options))",
        "exact cost: joint",
    ),
    Wrong(
        "share: a unit's rewards divide the budget",
        "privacy.noises.gaussian:Gaussian.budget",
        "mu_of(epsilon=epsilon, delta=delta) / options.rewards_per_unit",
        "mu_of(epsilon=epsilon, delta=delta) * options.rewards_per_unit",
        "budgets_of_units",
    ),
    Wrong(
        "share: δ's part for the grid",
        "privacy.noises.gaussian:Gaussian.budget",
        "delta -= slack",
        "delta += slack",
        "budgets_of_units",
    ),
    Wrong(
        "exchange: rounded up instead of down",
        "privacy.accounting:_mu_of",
        "1 - safe",
        "1 + safe",
        "exchange_of_gaussian_budgets",
    ),
    Wrong(
        "counter: the place in a block",
        "release.tree:place",
        "t - (1 << levels - 1) + 1",
        "t - (1 << levels - 1) - 1",
        "trees_in_dense_matrices",
    ),
    Wrong(
        "counter: nodes that begin",
        "release.pan_private:PanPrivateSums.starts",
        "index - 1",
        "index + 1",
        "releases_shown_once",
    ),
    Wrong(
        "clip",
        "reference.gate:Gate.clip",
        "max(reward, self.low)",
        "min(reward, self.low)",
        "gates_let_in_what_is_allowed",
    ),
    Wrong(
        "gate: contexts that are too long",
        "model:Gate.check",
        "self._refuse(given, math.sqrt(square))",
        "if False: self._refuse(given, math.sqrt(square))",
        "gates_let_in_what_is_allowed",
    ),
    Wrong(
        "cap: one reward more",
        "learning:within_caps",
        "before < cap",
        "before <= cap",
        "horizons_caps_and_failures",
    ),
    Wrong(
        "cap: rewards that are not counted",
        "learning:learn_of_users",
        "bandit.user_counts[name] = counted + 1",
        "if False: bandit.user_counts[name] = counted + 1",
        "horizons_caps_and_failures",
    ),
    Wrong(
        "order: what fails is not put back",
        "learning:learn_with_release",
        "engine.restore(before)",
        "if False: engine.restore(before)",
        "horizons_caps_and_failures",
    ),
    Wrong(
        "charge: lanes add up",
        "privacy.ledger:Ledger.charge",
        "max(self.total, total)",
        "min(self.total, total)",
        "ledger_against_a_book",
    ),
    Wrong(
        "charge: nothing is booked",
        "learning:learn_with_release",
        "book(bandit, booked)",
        "if False: book(bandit, booked)",
        "horizons_caps_and_failures",
    ),
    Wrong(
        "charge: what the sampler proves",
        "privacy.sources:_check",
        "proven <= charged",
        "proven < charged",
        "real_noise_is_charged_as_proven",
    ),
    Wrong(
        "grid: room for rounding",
        "privacy.grid:real_scale",
        "math.ceil(math.log2(slack))",
        "math.floor(math.log2(slack))",
        "grid_in_fractions",
    ),
    Wrong(
        "key: starts of pan-private nodes",
        "reference.engine:Engine.begin_simulated",
        "t * 64 + level",
        "t * 64 - level",
        "both engines: gauss, pan-private",
    ),
    Wrong(
        "stream index: a round's own noise",
        "reference.loops:trace",
        "t + 1",
        "t - 1",
        "core_scores_are_the_references",
    ),
    Wrong(
        "anytime: what is kept",
        "release.anytime:shown",
        "1.0 + rho",
        "1.0 - rho",
        "anytime_spends_no_more_than_one_budget",
    ),
    Wrong(
        "toeplitz: a reward is in later releases too",
        "release.toeplitz:squared_column",
        "1 + later",
        "1 - later",
        "toeplitz_in_dense_matrices",
    ),
]
