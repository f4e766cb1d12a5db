"""The mutants that `make test` tries: one for each way in which noise, counts or charges go wrong.

Two lines each: what would be wrong and the judge that must refuse it; then the function, and its text
before and after as `runner.py` prints them. All mutants run in `make test-all`.
"""

from __future__ import annotations

from typing import NamedTuple


class Wrong(NamedTuple):
    what: str
    judge: str
    function: str  # module:function
    before: str
    after: str


TEXT = """
scale: levels share the budget | noises_price_what_they_say
privacy.noises.gaussian:Gaussian.multiplier | math.sqrt(levels) / budget → math.sqrt(levels) * budget
scale: what a node needs | exact cost: laplace
learners.learner:Learner.scale | float(self.spec['multipliers'][levels]) * float(self.spec['sensitivity']) → float(self.spec['multipliers'][levels]) / float(self.spec['sensitivity'])
scale: a person's pair against none, not against another | exact cost: joint
algorithms.joint:_release | math.sqrt(2) * (1 + _margin(options)) → math.sqrt(2) / (1 + _margin(options))
share: a unit's rewards divide the budget | budgets_of_units
privacy.noises.gaussian:Gaussian.budget | mu_of(epsilon=epsilon, delta=delta) / options.moves_per_unit → mu_of(epsilon=epsilon, delta=delta) * options.moves_per_unit
share: δ's part for the grid | budgets_of_units
privacy.noises.gaussian:Gaussian.budget | delta -= slack → delta += slack
share: directions ride along free up to η² = ⅛ | pairs_spend_no_more_than_one_budget
release.pair:largest_move | 1.0 - t * t → 1.0 + t * t
exchange: rounded up instead of down | exchange_of_gaussian_budgets
privacy.accounting:_mu_of | 1 - safe → 1 + safe
counter: the place in a block | trees_in_dense_matrices
release.tree:place | t - (1 << levels - 1) + 1 → t - (1 << levels - 1) - 1
counter: nodes that begin | releases_shown_once
release.pan_private:PanPrivateSums.starts | index - 1 → index + 1
clip | gates_let_in_what_is_allowed
reference.gate:Gate.clip | max(reward, self.low) → min(reward, self.low)
clip: residuals of private contexts | both engines: pair
learners.pair:PairLearner.prepare | max(residual, -c) → min(residual, -c)
gate: contexts that are too long | gates_let_in_what_is_allowed
model:Gate.check | self._refuse(given, math.sqrt(square)) → if False: self._refuse(given, math.sqrt(square))
cap: one reward more | horizons_caps_and_failures
learning:within_caps | before < cap → before <= cap
cap: rewards that are not counted | horizons_caps_and_failures
state:Counted.count | self.before + self.each * sum(self.told[:1]) → self.before - self.each * sum(self.told[:1])
order: the draft does not come true | horizons_caps_and_failures
learning:learn_with_release | come_true(bandit, state.learned(draft, ledger, user), told) → if False: come_true(bandit, state.learned(draft, ledger, user), told)
order: what was released is not chained in | ledger_against_a_book
privacy.ledger:Ledger.sealed | f'{self.fingerprint}|{self.releases}|{self.total!r}|'.encode() + released → f'{self.fingerprint}|{self.releases}|{self.total!r}|'.encode() - released
charge: lanes add up | ledger_against_a_book
privacy.ledger:Ledger.after | max(self.total, total) → min(self.total, total)
charge: the same rewards pay again | ledger_against_a_book
privacy.ledger:Ledger.after | before + cost → before - cost
charge: what the sampler proves | real_noise_is_charged_as_proven
privacy.sources:_check | proven <= charged → proven < charged
grid: room for rounding | grid_in_fractions
privacy.grid:real_scale | math.ceil(math.log2(slack)) → math.floor(math.log2(slack))
key: starts of pan-private nodes | both engines: gauss, pan-private
reference.engine:Engine.begin_simulated | t * 64 + level → t * 64 - level
stream index: a round's own noise | core_scores_are_the_references
reference.loops:_trace | t + 1 → t - 1
anytime: what is kept | anytime_spends_no_more_than_one_budget
release.anytime:shown | 1.0 + rho → 1.0 - rho
toeplitz: a reward is in later releases too | toeplitz_in_dense_matrices
release.toeplitz:squared_column | 1 + later → 1 - later
"""


def sample() -> list[Wrong]:
    """The lines of TEXT, two by two."""
    lines = TEXT.strip().split("\n")
    found = []
    for said, change in zip(lines[::2], lines[1::2], strict=True):
        what, judge = said.split(" | ")
        function, text = change.split(" | ")
        found.append(Wrong(what, judge, function, *text.split(" → ")))
    return found
