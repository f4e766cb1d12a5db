"""Broken mechanisms, one for each kind of bug, and who catches it.

Run as a script with --write, it puts the table into docs/privacy.md; the tests check that the table there is this one.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import MethodType

import numpy as np
import pyarrow as pa
import pytest

import dpbandit as dpb
from dpbandit.auditing import guards
from dpbandit.auditing import warm as warm_checks
from dpbandit.auditing.attack import lower_bound
from dpbandit.auditing.joint_cost import freeze, uses_noise_twice
from dpbandit.auditing.releases import Watch, joint_cost, record
from dpbandit.auditing.scores import scores_of_releases
from dpbandit.bandits import rounds, warm
from dpbandit.bandits.logged import Tally
from dpbandit.errors import BudgetError
from dpbandit.noise import Real, Simulation
from dpbandit.release import anytime
from dpbandit.warmstart import start as warm_starts

DOCS = Path(__file__).parents[2] / "docs" / "privacy.md"
START, END = "<!-- planted bugs: start -->", "<!-- planted bugs: end -->"
EPSILON, DELTA = 2.0, 1e-3


@dataclasses.dataclass(frozen=True)
class Bug:
    """`plant` returns the evidence that the bug was caught, or raises AssertionError."""

    name: str
    caught_by: str
    plant: Callable[[], str]


def make(name: str = "tree-gauss", *, horizon: int | None = 64, dim: int = 1, **given):
    return dpb.make(name, dim=dim, epsilon=EPSILON, delta=DELTA, horizon=horizon, seed=0, **given)


def compiled_ratio(bandit, xs) -> float:
    """Exact joint cost of the worst position over what was asked for, through the compiled trace."""
    costs = freeze(bandit, xs).costs(np.arange(len(xs))[:, None], 1)
    gaussian = bandit.noise == "gaussian"
    return math.sqrt(costs.max()) / bandit.claim.mu if gaussian else costs.max() / EPSILON


def stepwise_cost(factory, xs, positions, *, users=None, between=None) -> tuple[float, str]:
    """Exact joint cost through the step-by-step object, with raw rewards far outside the range."""
    rewards = np.full(len(xs), -100.0)
    other = rewards.copy()
    other[positions] = 100.0
    one = record(factory, xs, rewards, users=users, between=between)
    two = record(factory, xs, other, users=users, between=between, script=one)
    return joint_cost(one, two)


def stepwise_ratio(factory, xs, positions, **given) -> float:
    cost, _why = stepwise_cost(factory, xs, positions, **given)
    bandit = factory()
    return math.sqrt(cost) / bandit.claim.mu if bandit.noise == "gaussian" else cost / EPSILON


def ones(rounds: int, dim: int = 1) -> np.ndarray:
    return np.full((rounds, dim), 1 / math.sqrt(dim))


def patched(bandit, **methods):
    for name, function in methods.items():
        setattr(bandit, name, MethodType(function, bandit))
    return bandit


# ---------------------------------------------------------------------------------------------------------------- bugs


def fresh_noise():
    """Every round publishes the whole sum again with new noise, as Algorithm 1 is printed."""
    bandit = make(horizon=1024)
    sd = bandit.plan.sensitivity * bandit.plan.multipliers[bandit.plan.levels]
    return np.array([[sd * math.sqrt(t.bit_count())] for t in range(1, 1025)])


def plant_fresh_noise() -> str:
    scales = fresh_noise()[:, 0]
    before = np.zeros((1024, 1))
    after = np.full((1024, 1), 2.0)  # the first reward is in every sum
    mu = math.sqrt(((after - before) ** 2 / scales[:, None] ** 2).sum())
    ratio = mu / make(horizon=1024).claim.mu
    assert ratio > 4
    found = lower_bound(*scores_of_releases("gaussian", before, after, scales, runs=40_000), delta=DELTA)
    assert found.epsilon > 2 * EPSILON
    return f"{ratio:.1f} × the claimed μ; attacked: ε ≥ {found.epsilon:.1f} where 2 is claimed"


def plant_l2_for_l1() -> str:
    dim = 16
    bandit = make("private-linucb", dim=dim)
    bandit.plan = bandit.plan._replace(sensitivity=2.0)  # W·L in L2, with Laplace noise per coordinate
    ratio = compiled_ratio(bandit, ones(64, dim))
    assert ratio > 3.9
    return f"{ratio:.2f} × the claimed ε (√d = 4)"


def plant_log_levels() -> str:
    bandit = make("private-linucb", horizon=1024)
    bandit.plan = bandit.plan._replace(multipliers=np.full(63, math.log2(1024) / EPSILON))
    ratio = compiled_ratio(bandit, ones(1024))
    assert ratio > 1.09
    return f"{ratio:.2f} × the claimed ε (11 levels, paid for 10)"


def per_node(horizon: int, noise: str, levels: float):
    """Noise on increments of θ̂ with the exact Δ_e of each node, every node paid for as if it were alone."""
    bandit = dpb.make(
        "dgs-published",
        dim=1,
        epsilon=EPSILON,
        delta=1e-9,
        horizon=horizon,
        noise=noise,
        smallest_eigenvalue=1.0,
        seed=0,
    )
    per_level = (
        levels / EPSILON if noise == "laplace" else math.sqrt(levels) / dpb.budget.mu_of(epsilon=EPSILON, delta=DELTA)
    )

    def learn(self, x, reward, known, share):
        rounds.prepare_one(self.learner, self.plan, x, reward, known)
        exact = 2.0 * float(np.linalg.norm(self.learner.ridge.inverse @ x))
        value = self.learner.pending
        noisy = self.source.release(self.noise, value, scale=exact * per_level, shift=exact, index=self.rounds)
        rounds.commit_one(self.learner, self.plan, noisy)

    return patched(bandit, _learn_from_source=learn)


def plant_per_node() -> str:
    found = []
    for horizon, noise, levels in ((1024, "laplace", 10.0), (1024, "laplace", 11.0), (1024, "gaussian", 11.0)):
        cost, _ = stepwise_cost(lambda h=horizon, n=noise, m=levels: per_node(h, n, m), ones(horizon), [0])
        target = EPSILON if noise == "laplace" else dpb.budget.mu_of(epsilon=EPSILON, delta=DELTA) ** 2
        found.append(cost / target)
    assert np.allclose(found, [2.83, 2.57, 1.27], atol=0.01), found
    return f"true ε {found[0]:.2f} × the claim with log₂T levels, {found[1]:.2f} × with h; Gaussian ρ {found[2]:.2f} ×"


def plant_reward_scale() -> str:
    def factory():
        bandit = make()

        def learn(self, x, reward, known, share):
            scale = rounds.prepare_one(self.learner, self.plan, x, reward, known) * (1 + abs(reward - 1))
            noisy = self.source.release(self.noise, self.learner.pending, scale=scale, shift=2.0, index=self.rounds)
            rounds.commit_one(self.learner, self.plan, noisy)

        return patched(bandit, _learn_from_source=learn)

    cost, why = stepwise_cost(factory, ones(16), [3])
    assert math.isinf(cost)
    return why


def plant_reward_schedule() -> str:
    def factory():
        bandit = make()

        def learn(self, x, reward, known, share):
            scale = rounds.prepare_one(self.learner, self.plan, x, reward, known)
            noisy = np.zeros(1)
            if reward > 0:  # "publish when something happened"
                noisy = self.source.release(self.noise, self.learner.pending, scale=scale, shift=2.0, index=self.rounds)
            rounds.commit_one(self.learner, self.plan, noisy)

        return patched(bandit, _learn_from_source=learn)

    cost, why = stepwise_cost(factory, ones(16), [3])
    assert math.isinf(cost)
    return why


def plant_redraw_after_load() -> str:
    def redraw(bandit, t):
        if t == 62:  # a "load" that keeps clean sums and draws the nodes in use again
            for level in range(6):
                scale = bandit.plan.sensitivity * bandit.plan.multipliers[bandit.plan.levels]
                node = bandit.learner.tree.sums[level].copy()
                bandit.source.release(bandit.noise, node, scale=scale, shift=2.0, index=t + 1)
        return bandit

    ratio = stepwise_ratio(make, ones(64), [0], between=redraw)
    assert ratio > 1.06
    assert stepwise_ratio(make, ones(64), [0]) <= 1 + 1e-9
    return f"{ratio:.3f} × the claimed μ after one load; exactly 1 without"


def plant_unclipped() -> str:
    def factory():
        bandit = make()
        bandit._clips = False
        return bandit

    ratio = stepwise_ratio(factory, ones(64), [0])
    assert ratio > 50
    return f"{ratio:.0f} × the claimed μ for a reward that moves by 200 instead of 2"


def plant_user_over_cap() -> str:
    users = ["one and the same"] * 8

    def broken():
        return patched(make(unit=("user", 2)), _admit=lambda self, names: [True] * len(names))

    ratio = stepwise_ratio(broken, ones(8), list(range(8)), users=users)
    sound = stepwise_ratio(lambda: make(unit=("user", 2)), ones(8), list(range(8)), users=users)
    assert ratio > 1.5
    assert sound <= 1 + 1e-9
    return f"{ratio:.2f} × the claimed μ for a user with 8 rewards; {sound:.2f} × with the cap of 2"


def plant_horizon_overrun() -> str:
    bandit = patched(make(horizon=4), _check_horizon=lambda self, count: None)
    try:
        for _ in range(20):
            bandit.update([1.0], 0.0)
    except BudgetError as error:
        assert bandit.rounds == 7, "the last round that needs no fourth level"
        return str(error)
    raise AssertionError("learned past its horizon")


class NumPyNoise:
    """What many libraries do: a generator in the process, copied by fork."""

    kind = "real"

    def __init__(self):
        self.rng = np.random.default_rng()

    def release(self, noise, value, *, scale, shift, index):
        return value + scale * self.rng.normal(size=len(value))


def plant_forked_noise() -> str:
    assert guards.repeats_across_forks(NumPyNoise())
    assert not guards.repeats_across_forks(Real())
    return "two forked children drew the same noise; with the real source they did not"


def plant_seeded_real_claim() -> str:
    bandit = make()
    bandit.claim = dataclasses.replace(bandit.claim, noise="real")
    assert not guards.claim_is_true_to_source(bandit)
    assert guards.claim_is_true_to_source(make())
    return "the claim says real, the source is a simulation"


class ClicksFirst:
    """Learns a click when it comes and everything else at a time-out."""

    def __init__(self):
        self.inner, self.waiting = make(), []

    def update(self, x, reward):
        if reward > 0:
            self.inner.update(x, reward)
        else:
            self.waiting.append((x, reward))
        if len(self.waiting) >= 4:
            for late in self.waiting:
                self.inner.update(*late)
            self.waiting = []

    source = property(lambda self: self.inner.source, lambda self, value: setattr(self.inner, "source", value))
    rounds = property(lambda self: self.inner.rounds)

    def _released(self):
        return self.inner._released()


def plant_learning_order() -> str:
    cost, why = stepwise_cost(ClicksFirst, ones(16) * np.linspace(0.5, 1, 16)[:, None], [1])
    assert math.isinf(cost)
    return why


def plant_float_noise() -> str:
    clean, scale = np.array([1 / 3, 0.1]), 1.0
    assert not guards.on_grid(NumPyNoise().release("gaussian", clean, scale=scale, shift=1.0, index=1), scale)
    assert guards.on_grid(Real().release("gaussian", clean, scale=scale, shift=1e-3, index=1), scale)
    return "outputs are off the sampler's grid; real ones are on it"


def plant_clean_export() -> str:
    def factory():
        bandit = make()
        public = bandit._released
        bandit._released = lambda: {**public(), "last_sum": bandit.learner.pending.tolist()}
        return bandit

    cost, why = stepwise_cost(factory, ones(8), [3])
    assert math.isinf(cost)
    return why


def plant_rounded_down() -> str:
    bandit = make()
    bandit.plan = bandit.plan._replace(multipliers=bandit.plan.multipliers * (1 - 1e-6))
    ratio = compiled_ratio(bandit, ones(64))
    assert ratio > 1 + 1e-7
    return f"{ratio:.7f} × the claimed μ"


def plant_repeated_noise() -> str:
    """A source that forgets to move on: every node gets the noise of the first."""
    bandit = make()
    frozen = freeze(bandit, ones(16))
    first = frozen.noisy[0] - frozen.values[0]
    frozen.noisy[:] = frozen.values + first
    assert uses_noise_twice(frozen)
    assert not uses_noise_twice(freeze(bandit, ones(64)))
    return "two releases carry the same noise"


def arms(horizon: int = 64, **given):
    return make("private-ucb", horizon=horizon, dim=2, **given)


def plant_noise_shared_by_arms() -> str:
    """The noise of a node numbered within its arm's tree: two arms' nodes with the same number get the same noise."""

    def learn(self, x, reward, known, booked):
        scale = rounds.prepare_one(self.learner, self.plan, x, reward, known)
        number = int(self.learner.pulls[self.learner.clock[3]])
        noisy = self.source.release(self.noise, self.learner.pending, scale=scale, shift=2.0, index=number)
        rounds.commit_one(self.learner, self.plan, noisy)

    xs = np.eye(2)[np.arange(16) % 2]

    def caught(factory) -> bool:
        seen, frozen = record(factory, xs, np.zeros(16)), freeze(factory(), xs)
        frozen.values[:] = [release.value for release in seen.releases]
        frozen.noisy[:] = [release.noisy for release in seen.releases]
        return uses_noise_twice(frozen)

    assert caught(lambda: patched(arms(), _learn_from_source=learn))
    assert not caught(arms)
    # The adversary's score is the difference of the two means after one pull each.
    scores = []
    for first in (-1.0, 1.0):
        differences = []
        for seed in range(2_000):
            bandit = patched(arms(), _learn_from_source=learn)
            bandit.source = Watch(Simulation(seed))
            bandit.update(np.eye(2), [first, 0.0])
            differences.append(bandit.theta[0] - bandit.theta[1])
        scores.append(np.array(differences))
    found = lower_bound(*scores, delta=0.0)
    assert found.epsilon > 2 * EPSILON
    return f"two releases carry the same noise; attacked: ε ≥ {found.epsilon:.1f} where 2 is claimed"


def plant_log_levels_of_arms() -> str:
    bandit = arms(horizon=1024)
    bandit.plan = bandit.plan._replace(multipliers=np.full(63, math.log2(1024) / EPSILON))
    ratio = compiled_ratio(bandit, np.eye(2)[np.zeros(1024, dtype=int)])
    assert ratio > 1.09
    assert compiled_ratio(arms(horizon=1024), np.eye(2)[np.zeros(1024, dtype=int)]) <= 1
    return f"{ratio:.2f} × the claimed ε when all pulls are of one arm"


def plant_retry() -> str:
    """An update that fails after the reward went in, and is tried again."""

    def factory(rolls_back: bool):
        bandit = make()

        def learn(self, x, reward, known, share):
            if self.rounds == 0 and not hasattr(self, "failed"):
                self.failed = True
                rounds.prepare_one(self.learner, self.plan, x, reward, known)
                raise MemoryError
            type(self)._learn_from_source(self, x, reward, known, share)

        patched(bandit, _learn_from_source=learn)
        if not rolls_back:
            bandit._arrays = dict  # nothing is put back
        update = bandit.update

        def stubborn(x, reward):
            try:
                update(x, reward)
            except MemoryError:
                update(x, reward)

        bandit.update = stubborn
        return bandit

    broken = stepwise_ratio(lambda: factory(False), ones(31), [0])
    sound = stepwise_ratio(lambda: factory(True), ones(31), [0])
    assert broken > 1.1
    assert sound <= 1 + 1e-9
    return f"{broken:.2f} × the claimed μ when nothing is put back; {sound:.2f} × as it ships"


def plant_early_release() -> str:
    """Weights 1/j² − 1/j′², where j′ is the planned time of the next release, and a next release that comes before j′."""

    def cost(planned: int, made: int) -> float:
        """What reward 100, released at 100 with weight 100, pays for that release and, from `made` on, for all later ones."""
        return 100**2 * ((1 / 100**2 - 1 / planned**2) + 1 / made**2)

    early = cost(105, 101)
    assert cost(105, 105) == pytest.approx(1)
    assert cost(105, 109) < 1
    assert early > 1.07
    # as it ships, a release spends a share of what is left, so its time does not matter
    shipped = stepwise_ratio(lambda: make("anytime", first_release=1, ratio=1.01, knee=1.0), ones(64), [0])
    assert shipped <= 1
    return f"{early:.3f} × the budget when planned for 105 and made at 101; {shipped:.3f} × the μ as it ships"


def plant_unshrunk_sum() -> str:
    """An anytime release that shows its share and keeps the sum as it was."""
    given = {"first_release": 2, "ratio": 1.2, "knee": 10.0}

    def restore(bandit, t):
        released = bandit.ledger.releases
        if released > getattr(restore, "seen", 0):
            later = anytime.next_time(t + 1, 1.2)
            bandit.learner.sums[:] /= anytime.kept(t + 1, later, 10.0)
        restore.seen = released if t + 1 < 64 else 0
        return bandit

    broken = stepwise_ratio(lambda: make("anytime", **given), ones(64), [0], between=restore)
    sound = stepwise_ratio(lambda: make("anytime", **given), ones(64), [0])
    assert broken > 1.5
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ after 64 rounds; {sound:.3f} × as it ships"


def plant_toeplitz_without_column() -> str:
    """Noise for what a reward moves in its own round, although encoding moves every later round too."""
    bandit = make("toeplitz", horizon=64)
    bandit.plan = bandit.plan._replace(sensitivity=2.0)
    ratio = compiled_ratio(bandit, ones(64))
    assert ratio > 1.3
    return f"{ratio:.2f} × the claimed μ at 64 rounds"


def warm_cost(bend=lambda bandit: bandit, watch=Watch) -> float:
    """Exact joint cost of a logged reward, over the claimed μ, for a bandit started from a log that was bent, or watched by another."""
    changed, users = warm_checks.neighbours(16, 8, None)[warm_checks.LOGGED]
    stream = warm_checks.Stream(ones(24), np.zeros(24), users, 16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm_checks, "Watch", watch)
        cost, _why = warm_checks.cost(lambda: bend(make(horizon=8)), stream, changed)
    return math.sqrt(cost) / make(horizon=8).claim.mu


def plant_noiseless_log() -> str:
    """The log's sums go into the model as they are."""

    class Forgetful(Watch):
        def release(self, noise, value, *, scale, shift, index):
            return super().release(noise, value, scale=0.0 if index == warm.INDEX else scale, shift=shift, index=index)

    broken = warm_cost(watch=Forgetful)
    sound = warm_cost()
    assert math.isinf(broken)
    assert sound <= 1
    return f"a value is released without noise; {sound:.3f} × the claimed μ as it ships"


def plant_unclipped_log() -> str:
    def bend(bandit):
        bandit._clips = False
        return bandit

    ratio = warm_cost(bend)
    assert ratio > 15
    return f"{ratio:.0f} × the claimed μ for a logged reward that moves by 42 instead of 2"


def plant_log_without_cap() -> str:
    """Users' rewards in the log are not counted: neither there, nor against what they may have online."""

    class Careless(Tally):
        def admit(self, names, status, *, over):
            pass

    crowded = warm_checks.Stream(ones(24), np.zeros(24), ["target"] * 8 + [f"u{i}" for i in range(16)], 16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm_starts, "Tally", Careless)
        over, _ = warm_checks.cost(lambda: make(horizon=8, unit=("user", 2)), crowded, list(range(8)))
    kept, _ = warm_checks.cost(lambda: make(horizon=8, unit=("user", 2)), crowded, list(range(8)))
    mu = make(horizon=8).claim.mu
    assert math.sqrt(kept) / mu <= 1
    assert math.sqrt(over) / mu > 3.9
    return f"{math.sqrt(over) / mu:.2f} × the claimed μ for a user with 8 logged rewards; {math.sqrt(kept) / mu:.2f} × with the cap of 2"


def plant_log_charged_to_nobody() -> str:
    """The log's rewards are learned online once more: the ledger cannot know, the joint cost does."""
    once = warm_checks.Stream(ones(24), np.zeros(24), [f"u{i}" for i in range(24)], 16)
    cost, _ = warm_checks.cost(lambda: make(horizon=8), once, [3, 16])  # one person's reward, in the log and online
    ratio = math.sqrt(cost) / make(horizon=8).claim.mu
    assert ratio > 1.4
    return f"{ratio:.2f} × the claimed μ for a reward that is in the log and comes online again"


def plant_guessed_rows() -> str:
    """A reward that is not a number counts as 0, and nobody is told."""
    table = pa.table({"x": [[0.5]] * 4, "reward": [1.0, math.nan, 1.0, 1.0]})
    given = {"epsilon": EPSILON, "delta": DELTA, "horizon": 8, "seed": 0}
    shipped = dpb.warm_start(table, "tree-gauss", context="x", **given)
    filled = dpb.warm_start(
        table.set_column(1, "reward", pa.array([1.0, 0.0, 1.0, 1.0])), "tree-gauss", context="x", **given
    )
    assert shipped.log.bad["reward not finite"] == 1
    assert shipped.log.learned == 3
    assert (shipped.theta != filled.theta).all()
    return f"{shipped.log}"


BUGS = [
    Bug("fresh noise each round", "verify, audit", plant_fresh_noise),
    Bug("L2 sensitivity where L1 is needed (a missing √d)", "verify", plant_l2_for_l1),
    Bug("log₂T levels instead of h = ⌊log₂T⌋ + 1", "verify", plant_log_levels),
    Bug("per-node instead of joint accounting, exact Δ", "verify", plant_per_node),
    Bug("a noise scale that depends on rewards", "verify", plant_reward_scale),
    Bug("a schedule that depends on rewards", "verify", plant_reward_schedule),
    Bug("noise redrawn after load", "verify", plant_redraw_after_load),
    Bug("unclipped rewards", "verify", plant_unclipped),
    Bug("a user over the cap", "verify", plant_user_over_cap),
    Bug("running past the horizon", "ledger", plant_horizon_overrun),
    Bug("forked processes sharing noise", "guard", plant_forked_noise),
    Bug("a seeded bandit whose claim says real noise", "guard", plant_seeded_real_claim),
    Bug("clicks learned on arrival, non-clicks at a time-out", "verify", plant_learning_order),
    Bug("float noise added to a clean value", "guard", plant_float_noise),
    Bug("a clean statistic in the exported model", "verify", plant_clean_export),
    Bug("an accountant that rounds down", "verify", plant_rounded_down),
    Bug("one noise for two releases", "verify", plant_repeated_noise),
    Bug("noise numbered within an arm's tree, so that arms share it", "verify, audit", plant_noise_shared_by_arms),
    Bug("log₂T levels in an arm's tree", "verify", plant_log_levels_of_arms),
    Bug("a failed update tried again counts a reward twice", "verify", plant_retry),
    Bug("a release earlier than its weights were planned for", "verify", plant_early_release),
    Bug("an anytime release that does not shrink what is left", "verify", plant_unshrunk_sum),
    Bug("encoded sums with the sensitivity of one round", "verify", plant_toeplitz_without_column),
    Bug("a log whose sums are released without noise", "verify", plant_noiseless_log),
    Bug("a log whose rewards are not clipped", "verify", plant_unclipped_log),
    Bug("a log that ignores users' caps", "verify", plant_log_without_cap),
    Bug("a logged reward that is learned online as well", "verify", plant_log_charged_to_nobody),
    Bug("a log whose bad rows are guessed", "count", plant_guessed_rows),
]


def table() -> str:
    rows = [f"| {bug.name} | {bug.caught_by} | {bug.plant()} |" for bug in BUGS]
    return "\n".join(["| planted bug | caught by | evidence |", "|---|---|---|", *rows])


def main() -> None:
    text = DOCS.read_text()
    before, rest = text.split(START)
    after = rest.split(END)[1]
    DOCS.write_text(f"{before}{START}\n{table()}\n{END}{after}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        main()
    else:
        print(table())
