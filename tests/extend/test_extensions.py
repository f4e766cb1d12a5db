"""A policy, a noise and a release, each added by one file, walk through everything: right, or
refused by name. Mistakes planted in each are seen."""

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit import engine as engines
from dpbandit import policies
from dpbandit.algorithms import moments, registry
from dpbandit.algorithms.moments import on_moments
from dpbandit.auditor import verify as verification
from dpbandit.errors import (
    DpbanditError,
    NoiseError,
    OptionError,
    PropensityError,
    UnknownAlgorithmError,
)
from dpbandit.gpu import plans, translation
from dpbandit.logs import enter, ways
from dpbandit.model import ReleasedModel
from dpbandit.policies import POLICIES, UCB
from dpbandit.privacy import noise
from dpbandit.privacy.noise import GAUSSIAN, NOISES
from dpbandit.privacy.noises.check import contradiction
from dpbandit.privacy.sources import Simulation
from dpbandit.reference import engine as reference
from dpbandit.reference import spec as reference_spec
from dpbandit.release import RELEASES, Tree

ROOT = Path(__file__).parents[2]
TABLES = (POLICIES, NOISES, registry.ALGORITHMS)
# Algorithm, file, and the part that only Python has.
EXTENSIONS = {
    "epsilon-greedy": ("epsilon_greedy", "policy 'epsilon-greedy'"),
    "logistic-linucb": ("logistic", "noise 'logistic'"),
    "tiles": ("tiles", "release 'tiles'"),
}
GIVEN = {"dim": 2, "epsilon": 2.0, "delta": 1e-3, "horizon": 64}
SLATE = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, -0.8]])

pytestmark = pytest.mark.filterwarnings("ignore::dpbandit.errors.PrivacyWarning")


def load(name):
    """The module of one example, run as a user's program would run it."""
    place = importlib.util.spec_from_file_location(name, ROOT / f"examples/extend/{name}.py")
    module = importlib.util.module_from_spec(place)
    sys.modules[name] = module  # dataclasses look themselves up
    place.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """What only Python runs takes seconds for the stream on which rounding matters: a short one."""
    monkeypatch.setattr(verification, "LONG", 128)


@pytest.fixture
def tables():
    """Whatever is added is taken away again."""
    before = [dict(table) for table in TABLES]
    yield
    for table, old in zip(TABLES, before, strict=True):
        table.clear()
        table.update(old)


@pytest.fixture(scope="module")
def loaded():
    """The modules, and what each added to the tables. Noise is checked while it is added, which
    takes time: once is enough."""
    before = [dict(table) for table in TABLES]
    modules = {name: load(file) for name, (file, _) in EXTENSIONS.items()}
    added = []
    for table, old in zip(TABLES, before, strict=True):
        added.append({key: table[key] for key in table if key not in old})
        table.clear()
        table.update(old)
    return modules, added


@pytest.fixture
def modules(loaded, tables):
    modules, added = loaded
    for table, new in zip(TABLES, added, strict=True):
        table.update(new)
    return modules


@pytest.fixture(params=EXTENSIONS)
def name(request, modules):
    return request.param


def learn(bandit, rounds=20):
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        arm = bandit.select(SLATE)
        bandit.update(SLATE[arm], float(rng.uniform(-1, 1)))
    return bandit


# ---------------------------------------------------------------------------------- the walk


def test_it_is_made_and_says_what_runs_it(name):
    bandit = learn(dpb.make(name, seed=1, **GIVEN))
    assert bandit.rounds == 20
    assert f"on the reference engine (the core has no {EXTENSIONS[name][1]})" in repr(bandit)
    assert bandit.claim.status == "proven"
    assert 0 < bandit.spent.epsilon <= 2.0 + 1e-9
    assert np.isfinite(bandit.theta).all()
    assert bandit.theta.any()
    with pytest.raises(OptionError, match=EXTENSIONS[name][1]):
        dpb.make(name, seed=1, backend="core", **GIVEN)


def test_real_noise_is_exact_or_refused(name):
    if name == "logistic-linucb":
        with pytest.raises(NoiseError, match="no exact sampler for 'logistic'"):
            dpb.make(name, **GIVEN)
        return
    bandit = learn(dpb.make(name, **GIVEN), rounds=10)
    assert bandit.claim.noise == "real"
    assert bandit.ledger.releases == (1 if name == "tiles" else 10)


def test_a_run_plays_what_select_and_update_play(name):
    world, rounds = dpb.worlds.Synthetic(arms=20, dim=2, shown=4), 40
    given = {"epsilon": 2.0, "delta": 1e-3, "reward_range": (-0.5, 1.5)}
    results = dpb.run(world, [name], horizon=rounds, seeds=[3], workers=1, **given)
    episode = world.episode(3)
    known = {"dim": 2, "horizon": rounds, "seed": 3, "public_contexts": episode.public_contexts}
    bandit, block, total = dpb.make(name, **known, **given), episode.block(rounds), 0.0
    for shown, rewards in zip(block.shown, block.rewards, strict=True):
        slate = block.pool[shown]
        arm = bandit.select(slate)
        bandit.update(slate[arm], float(rewards[arm]))
        total += rewards[arm]
    assert results.rows[0]["reward"][-1] == pytest.approx(total, rel=1e-12)
    assert results.rows[0]["theta_error"][-1] == pytest.approx(
        np.linalg.norm(bandit.theta - episode.theta), rel=1e-12
    )


def test_a_save_goes_on_bit_for_bit(name, tmp_path):
    bandit = learn(dpb.make(name, seed=1, **GIVEN), rounds=13)
    bandit.save(tmp_path / "bandit.npz")
    other = dpb.load(tmp_path / "bandit.npz", receipt=bandit.receipt())
    assert learn(other).theta.tolist() == learn(bandit).theta.tolist()
    assert other.receipt() == bandit.receipt()


def test_propensities_are_exact_or_refused(name):
    bandit = learn(dpb.make(name, seed=1, **GIVEN))
    if name != "epsilon-greedy":
        with pytest.raises(PropensityError, match=name):
            bandit.propensities(SLATE)
        return
    found = bandit.propensities(SLATE)
    best = int((SLATE @ bandit.theta).argmax())
    expected = [0.1 / 3 + (0.9 if arm == best else 0.0) for arm in range(3)]
    assert found.probabilities.tolist() == pytest.approx(expected, rel=1e-12)
    assert not found.standard_errors.any()
    twins = bandit.propensities(SLATE[[best, best, 0]])  # ties share
    assert twins.probabilities[0] == twins.probabilities[1]
    assert twins.probabilities.sum() == pytest.approx(1.0)


def played(select, count=4_000):
    return np.bincount([select(SLATE) for _ in range(count)], minlength=3) / count


def fits(frequencies, propensities, count=4_000):
    """Within 5 standard errors of each arm: three in a million runs fall outside by chance."""
    p = propensities.probabilities
    return bool((np.abs(frequencies - p) <= 5 * np.sqrt(p * (1 - p) / count)).all())


def test_arms_are_played_as_often_as_propensities_say(modules, tmp_path):
    bandit = learn(dpb.make("epsilon-greedy", seed=1, alpha=0.4, **GIVEN))
    assert fits(played(bandit.select), bandit.propensities(SLATE))
    bandit.export(tmp_path / "model.json")
    model = dpb.load(tmp_path / "model.json")
    assert fits(played(model.select), model.propensities(SLATE))
    assert model.propensities(SLATE).probabilities.tolist() == pytest.approx(
        bandit.propensities(SLATE).probabilities.tolist()
    )


def test_an_export_ranks_as_the_bandit_does(name, tmp_path):
    bandit = learn(dpb.make(name, seed=1, **GIVEN))
    bandit.export(tmp_path / "model.json")
    model = dpb.load(tmp_path / "model.json")
    assert model.policy is bandit.policy
    assert model.theta.tolist() == bandit.theta.tolist()
    if name != "epsilon-greedy":  # which draws lots: see above
        rng = np.random.default_rng(5)
        for slate in rng.normal(size=(50, 4, 2)) / 6:
            assert model.select(slate) == bandit.select(slate)


STRANGER = """
import json, sys
import dpbandit as dpb
from dpbandit.model import ReleasedModel
try:
    print(ReleasedModel.from_record(json.load(open(sys.argv[1]))).policy.name)
except dpb.errors.DpbanditError as error:
    print(type(error).__name__, error)
try:
    dpb.load(sys.argv[2])
except dpb.errors.DpbanditError as error:
    print(type(error).__name__, error)
"""


def test_a_process_that_knows_nothing_of_it_ranks_rightly_or_refuses_by_name(name, tmp_path):
    bandit = learn(dpb.make(name, seed=1, **GIVEN))
    model, saved = tmp_path / "model.json", tmp_path / "bandit.npz"
    bandit.export(model)
    bandit.save(saved)
    command = [sys.executable, "-c", STRANGER, str(model), str(saved)]
    ranked, loaded = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    if name == "epsilon-greedy":
        assert ranked.startswith("SaveError no policy is called 'epsilon-greedy'")
    else:
        assert ranked == "ucb"  # all that a ranker needs is in the record
    assert loaded.startswith(f"UnknownAlgorithmError no algorithm is called '{name}'")


def test_a_record_that_the_policy_cannot_have_written_is_refused(modules):
    record = learn(dpb.make("epsilon-greedy", seed=1, **GIVEN)).model().to_record()
    for change in ({"alpha": 1.5}, {"theta": [1.0]}, {"policy": 4}, {"policy": "greedy"}, {"x": 1}):
        with pytest.raises(dpb.errors.SaveError):
            ReleasedModel.from_record({**record, **change})
    assert ReleasedModel.from_record(json.loads(json.dumps(record))).alpha == 0.1


def test_it_is_planned_for(name):
    found = dpb.plan(
        dim=2, arms=3, epsilon=2.0, delta=1e-3, horizon=200, algorithms=[name], particles=4
    )
    assert found.recommended == name
    assert found.final(name) > 0


def test_verify_finds_that_its_claim_is_exact(name):
    found = dpb.verify(name, epsilon=2.0, delta=1e-3, horizon=24, dim=2, tries=2, workers=1)
    assert found.holds, str(found)
    assert found.worst.ratio == pytest.approx(1.0, abs=1e-6)
    assert len(found.cases) == 10


def test_audit_attacks_it_by_the_likelihood_of_its_releases(name):
    """An alarm at 99.9% is false once in a thousand; the seed is fixed."""
    rounds = 8 if name == "tiles" else 1
    found = dpb.audit(name, epsilon=6.0, delta=1e-2, horizon=rounds, dim=1, runs=400, workers=1)
    assert found.holds, str(found)
    assert found.statistic == "the likelihood ratio of all releases"
    assert found.bound.epsilon > 0


def test_a_gpu_refuses_it_by_name(name):
    bandit = dpb.make(name, seed=1, **GIVEN)
    with pytest.raises(OptionError, match=EXTENSIONS[name][1]):
        translation.plan_of(bandit, 64)
    with pytest.raises(OptionError, match=name):
        dpb.audit(name, epsilon=2.0, delta=1e-3, horizon=8, dim=1, runs=400, device="host")


def test_it_starts_from_a_log_and_the_whole_is_verified(name):
    found = dpb.verify(name, epsilon=2.0, delta=1e-3, horizon=16, dim=2, log_rows=12)
    assert found.holds, str(found)
    assert found.worst.ratio > 0.9


def test_options_are_checked(name):
    with pytest.raises(OptionError, match="horizn"):
        dpb.make(name, horizn=3, **GIVEN)
    if name == "epsilon-greedy":
        for alpha in (1.5, "theory"):
            with pytest.raises(OptionError, match="probability alpha"):
                dpb.make(name, alpha=alpha, **GIVEN)
    else:
        bandit = learn(dpb.make(name, seed=0, alpha="theory", **GIVEN))
        assert bandit.model().alpha > 1


def test_what_was_taken_away_is_refused_by_name(tables):
    load("logistic")
    bandit = dpb.make("logistic-linucb", seed=0, **GIVEN)
    del registry.ALGORITHMS["logistic-linucb"], NOISES["logistic"]
    with pytest.raises(UnknownAlgorithmError, match="logistic-linucb"):
        dpb.make("logistic-linucb", seed=0, **GIVEN)
    with pytest.raises(OptionError, match="noise 'logistic' is not possible here"):
        replace(bandit.design, alpha=0.1)


# -------------------------------------------------------------------------- planted mistakes


def cost(name, **more):
    given = {"epsilon": 2.0, "delta": 1e-3, "horizon": 24, "dim": 2, "tries": 0, "workers": 1}
    return dpb.verify(name, **given, **more)


def with_release(kind):
    def design(name, options):
        return on_moments(name, options, "gaussian", release=kind)

    dpb.register("wrong", design=design, replace=True)
    return cost("wrong")


def test_items_that_are_counted_twice_are_seen(modules):
    tiles = modules["tiles"]

    class Kept(tiles.TileSums):
        def add(self, t, item):
            self.tile[0] = self.tile[0] + item
            return self.tile[0] if t % tiles.TILE == 0 else None  # and not emptied

    @dataclass(frozen=True, eq=False)
    class Wrong(tiles.Tiles):
        name, in_core = "wrong", False

        def sums(self, dim):
            return Kept(dim)

    found = with_release(Wrong)
    assert not found.holds
    # In three tiles, paid for one; on the long stream in sixteen.
    assert found.cases[0].ratio == pytest.approx(3**0.5, abs=1e-6)
    assert found.worst.ratio == pytest.approx(16**0.5, abs=1e-6)


def test_half_the_noise_is_seen(modules):
    @dataclass(frozen=True, eq=False)
    class Wrong(modules["tiles"].Tiles):
        name, in_core = "wrong", False

        def scale(self, t):
            return super().scale(t) / 2

    with pytest.raises(dpb.errors.BudgetError, match="the reward's tile"):
        with_release(Wrong)  # the price follows from the scale, and the ledger says no

    @dataclass(frozen=True, eq=False)
    class Lying(Wrong):
        name, in_core = "lying", False

        def charge(self, engine, t):
            found = super().charge(engine, t)
            return found._replace(share=found.share / 4)

    found = with_release(Lying)
    assert not found.holds
    assert found.worst.ratio == pytest.approx(2.0, abs=1e-6)


def test_a_scale_that_depends_on_what_was_learned_is_seen(modules):
    """A release is told the round alone; one that looks elsewhere is found out by its scales."""
    seen = []

    class Peeking(modules["tiles"].TileSums):
        def add(self, t, item):
            seen[:] = [float(item[0] > 0)]
            return super().add(t, item)

    @dataclass(frozen=True, eq=False)
    class Wrong(modules["tiles"].Tiles):
        name, in_core = "wrong", False

        def sums(self, dim):
            return Peeking(dim)

        def scale(self, t):
            return super().scale(t) * (1 + seen[0])

    found = with_release(Wrong)
    assert not found.holds
    assert found.worst.ratio == float("inf")


def test_a_ledger_with_too_high_a_limit_still_says_what_was_spent(modules):
    @dataclass(frozen=True, eq=False)
    class Wrong(modules["tiles"].Tiles):
        name, in_core = "wrong", False

        def scale(self, t):
            return super().scale(t) / 2

        def room(self, engine):
            """There is no room after the limit, and none is asked for."""

    def design(name, options):
        found = on_moments(name, options, "gaussian", release=Wrong)
        return replace(found, ledger=dpb.Ledger(limit=100.0, currency="mu²"))

    dpb.register("wrong", design=design)
    assert cost("wrong").worst.ratio == pytest.approx(2.0, abs=1e-6)
    bandit = dpb.make("wrong", **GIVEN)
    learn(bandit, rounds=8)
    assert bandit.spent.mu == pytest.approx(2 * bandit.claim.mu, rel=1e-6)  # it is not hidden


def twisted(modules, **methods):
    """The example's noise with a mistake in it, under a name of its own."""
    words = {"name": "wrong", "in_core": False, "has_real_source": False, **methods}
    return type("Wrong", (type(modules["logistic-linucb"].LOGISTIC),), words)()


MISTAKES = {
    "half the noise": {
        "multiplier": lambda self, budget, levels: levels / budget / 2,
        "share": lambda self, multiplier: 1 / multiplier / 2,
    },
    "half the noise, charged in full": {
        "multiplier": lambda self, budget, levels: levels / budget / 2
    },
    "half the cost": {
        "cost": lambda self, shift, scale: noise.nothing_or_everything(
            shift, scale, float(np.abs(shift).sum()) / (scale or 1.0) / 2
        )
    },
    "half the draw": {
        "simulate": lambda self, key, index, scale, value: LOGISTIC_DRAW(
            self, key, index, scale / 2, value
        )
    },
    "one draw for all": {
        "simulate": lambda self, key, index, scale, value: LOGISTIC_DRAW(self, key, 0, scale, value)
    },
    "another's density": {
        "log_ratio": lambda self, y, v0, v1, scale: NOISES["laplace"].log_ratio(y, v0, v1, scale)
    },
    "free without noise": {"cost": lambda self, shift, scale: float(np.abs(shift).sum())},
    "another's spread": {"standard_deviation": lambda self, dim=1: 1.0},
    "paid twice over": {"share": lambda self, multiplier: 2 / multiplier},
    "another currency": {"currency": "mu²"},
    "another notion": {"notion": "joint"},
}


def LOGISTIC_DRAW(self, key, index, scale, value):  # noqa: N802 - stands for a method
    return super(type(self), self).simulate(key, index, scale, value)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_noise_that_contradicts_itself_is_not_added(modules, mistake):
    with pytest.raises(OptionError, match="contradicts itself"):
        noise.add(twisted(modules, **MISTAKES[mistake]))
    assert "wrong" not in NOISES


@pytest.mark.parametrize("kind", [n for n in NOISES.values() if n.notion in ("pure", "gdp")])
def test_no_noise_of_ours_contradicts_itself(kind):
    assert contradiction(kind) == ""


def with_noise(wrong):
    """By hand into the table: what `add` would refuse."""
    NOISES["wrong"] = wrong
    dpb.register("wrong", design=lambda name, options: on_moments(name, options, wrong))


def test_half_of_a_new_noise_is_seen_by_verify_too(modules):
    with_noise(twisted(modules, **MISTAKES["half the noise"]))
    assert cost("wrong").worst.ratio == pytest.approx(2.0, abs=1e-6)


def test_half_of_a_new_noise_that_is_charged_in_full_is_refused_by_the_ledger(modules):
    with_noise(twisted(modules, **MISTAKES["half the noise, charged in full"]))
    with pytest.raises(dpb.errors.BudgetError, match="the limit is 2"):
        learn(dpb.make("wrong", seed=0, **GIVEN))


def test_draws_that_are_too_small_are_seen_by_audit(modules):
    """`verify` believes the noise's word on its draws; an attack looks at them."""

    def draw(self, key, index, scale, value):
        return LOGISTIC_DRAW(self, key, index, scale / 10, value)

    with_noise(twisted(modules, simulate=draw))
    found = dpb.audit("wrong", epsilon=0.5, horizon=1, dim=1, runs=400, workers=1)
    assert not found.holds, str(found)


def test_noise_that_comes_again_is_seen_by_verify(modules):
    with_noise(twisted(modules, **MISTAKES["one draw for all"]))
    found = cost("wrong")
    assert not found.holds
    assert found.worst.why == "a number of the noise is used twice"


def test_wrong_propensities_are_seen(modules):
    class Wrong(type(modules["epsilon-greedy"].EPSILON_GREEDY)):
        name = "wrong"

        def propensities(self, view, contexts, alpha, **more):
            return super().propensities(view, contexts, alpha / 2, **more)

    policy = policies.add(Wrong())
    dpb.register("wrong", design=lambda n, o: on_moments(n, o, "gaussian", policy=policy))
    bandit = learn(dpb.make("wrong", seed=1, alpha=0.4, **GIVEN))
    assert not fits(played(bandit.select), bandit.propensities(SLATE))


# ----------------------------------------------------- nothing stands in for something else


@pytest.mark.parametrize("missing", ["scores", "propensities", "record", "view_of"])
def test_a_policy_that_leaves_something_out_cannot_be_made(modules, missing):
    whole = type(modules["epsilon-greedy"].EPSILON_GREEDY)
    words = {key: value for key, value in vars(whole).items() if key != missing}
    with pytest.raises(TypeError, match=missing):
        type("Lacking", (policies.Policy,), words)()


@pytest.mark.parametrize("missing", ["scale", "lane", "room", "squares", "sums", "draws"])
def test_a_release_that_leaves_something_out_cannot_be_made(modules, missing):
    whole = modules["tiles"].Tiles
    words = {key: value for key, value in vars(whole).items() if key != missing}
    base = whole.__bases__[0]
    with pytest.raises(TypeError, match=missing):
        type("Lacking", (base,), words)(GAUSSIAN, 8, 1.0, 1.0)


@pytest.mark.parametrize("missing", ["name", "in_core"])
def test_a_release_says_itself_what_it_is(modules, missing):
    words = {"name": "own", "in_core": False}
    del words[missing]
    for base in (modules["tiles"].Tiles, Tree):
        with pytest.raises(TypeError, match=missing):
            type("Lacking", (base,), words)


def test_a_policy_that_scores_in_its_own_way_has_its_own_name():
    with pytest.raises(TypeError, match="its own name"):
        type("Mine", (type(UCB),), {"scores": lambda *args: np.zeros(3)})


def test_what_the_core_knows_is_not_inherited():
    mine = type("Mine", (type(UCB),), {"name": "mine"})
    assert not mine.in_core
    louder = type("Louder", (type(GAUSSIAN),), {"name": "louder"})
    assert not louder.in_core
    assert not louder.has_real_source


def design_with(policy=UCB, release=Tree, kind="gaussian"):
    def design(name, options):
        return on_moments(name, options, kind, release=release, policy=policy)

    dpb.register("own", design=design, replace=True)
    return dpb.make("own", seed=0, **GIVEN)


def test_a_part_that_was_not_added_makes_no_bandit(tables):
    mine = type("Mine", (type(UCB),), {"name": "mine"})()
    with pytest.raises(OptionError, match="no policy is called 'mine'"):
        design_with(policy=mine)
    impostor = type("Mine", (type(UCB),), {"name": "ucb"})()
    with pytest.raises(OptionError, match="another policy is called 'ucb'"):
        design_with(policy=impostor)
    louder = type("Louder", (type(GAUSSIAN),), {"name": "gaussian"})()
    with pytest.raises(OptionError, match="another noise is called 'gaussian'"):
        design_with(kind=louder)
    for part, add in ((impostor, policies.add), (louder, noise.add)):
        with pytest.raises(OptionError, match="exists"):
            add(part, replace=True)


def test_a_release_that_poses_as_one_of_the_cores_makes_no_bandit(tables):
    poses = type("Poses", (Tree,), {"name": "tree", "in_core": True})
    with pytest.raises(OptionError, match="the core has no release 'tree'"):
        design_with(release=poses)
    # What it would hand to the engine is a tree's name.
    hides = type("Hides", (Tree,), {"name": "tree", "in_core": False})
    with pytest.raises(OptionError, match="only Python has the release 'tree'"):
        design_with(release=hides)


@pytest.mark.parametrize("given", [{}, {"factory": 3}, {"factory": dict, "design": dict}])
def test_register_takes_a_factory_or_a_design(given):
    with pytest.raises(OptionError, match="either a factory"):
        dpb.register("neither", **given)


def test_a_design_must_be_one(tables):
    dpb.register("no-design", design=lambda name, options: 4)
    with pytest.raises(OptionError, match="must return a dpbandit"):
        dpb.make("no-design", dim=2)


# ------------------------------------------------------------------------- the bogus noise

# Every table of parts, and how a bare word gets into it.
BOGUS = {
    "the noises": lambda put: put(NOISES, "logistic", 4),
    "the noises, a word": lambda put: put(NOISES, "logistic", "gaussian"),
    "the noises, another's object": lambda put: put(NOISES, "logistic", GAUSSIAN),
    "the noises of the GPU": lambda put: put(plans.NOISES, "logistic", 4),
}


@pytest.fixture
def put(monkeypatch):
    # The word is allowed wherever words are allowed: the noise itself is what is missing.
    monkeypatch.setattr(moments, "NOISES", (*moments.NOISES, "logistic"))
    return monkeypatch.setitem


@pytest.mark.parametrize("table", [*BOGUS, "all of them"])
@pytest.mark.parametrize("algorithm", ["private-linucb", "private-ts"])
def test_a_word_in_a_table_makes_no_noise(put, table, algorithm):
    for fill in BOGUS.values() if table == "all of them" else [BOGUS[table]]:
        fill(put)
    given = {**GIVEN, "noise": "logistic"}
    run = {key: value for key, value in given.items() if key != "dim"}
    for attempt in (
        lambda: dpb.make(algorithm, seed=0, **given),
        lambda: dpb.make(algorithm, seed=0, backend="core", **given),
        lambda: dpb.verify(algorithm, tries=0, **given),
        lambda: dpb.audit(algorithm, runs=400, **given),
        lambda: dpb.plan(arms=3, algorithms=[algorithm], **given),
        lambda: dpb.run(dpb.worlds.Synthetic(dim=2), [algorithm], seeds=1, **run),
    ):
        with pytest.raises(OptionError, match="logistic"):
            attempt()


@pytest.mark.parametrize("value", [4, "ucb", UCB])
def test_a_word_in_the_table_makes_no_policy(monkeypatch, value):
    monkeypatch.setitem(POLICIES, "greedy", value)
    record = learn(dpb.make("linucb", dim=2, seed=0)).model().to_record()
    with pytest.raises(dpb.errors.SaveError, match="greedy"):
        ReleasedModel.from_record({**record, "policy": "greedy"})
    spec = dpb.make("linucb", dim=2, seed=0).spec
    for backend in ("core", "reference"):
        with pytest.raises((ValueError, DpbanditError), match="greedy"):
            engines.new_engine({**spec, "policy": "greedy"}, backend)


def test_a_word_in_the_tables_of_releases_makes_no_release(monkeypatch):
    monkeypatch.setitem(RELEASES, "logistic", 4)
    sums = (*reference_spec.FITTING["moments"], "logistic")
    monkeypatch.setitem(reference_spec.FITTING, "moments", sums)
    spec = dpb.make("tree-gauss", seed=0, **GIVEN).spec
    with pytest.raises(ValueError, match="logistic"):
        reference.Engine({**spec, "release": "logistic"})
    with pytest.raises(ValueError, match="logistic"):
        engines.new_engine({**spec, "release": "logistic"}, "core")


@pytest.mark.parametrize("table", ["LEARNERS", "SITES"])
def test_a_word_in_the_tables_of_learners_makes_no_learner(monkeypatch, table):
    monkeypatch.setitem(getattr(reference, table), "logistic", 4)
    spec = dpb.make("tree-gauss", seed=0, **GIVEN).spec
    key = {"LEARNERS": "learner", "SITES": "site"}[table]
    with pytest.raises((ValueError, KeyError, TypeError)):
        reference.Engine({**spec, key: "logistic"})
    with pytest.raises(ValueError, match="logistic"):
        engines.new_engine({**spec, key: "logistic"}, "core")


def test_a_word_in_the_tables_of_algorithms_and_ways_makes_nothing(monkeypatch):
    monkeypatch.setitem(registry.ALGORITHMS, "logistic", 4)
    with pytest.raises(UnknownAlgorithmError, match="logistic"):
        dpb.make("logistic", dim=2)
    monkeypatch.setitem(ways.WAYS, ("arms", ""), 4)
    monkeypatch.setitem(translation.POLICIES, "arms", "index")
    bandit = dpb.make("private-ucb", dim=2, epsilon=1.0, horizon=8, seed=0)
    with pytest.raises((OptionError, KeyError)):
        translation.plan_of(bandit, 8)
    assert "trees of their own" in enter.why_not(bandit)


def test_simulated_noise_of_a_part_of_ones_own_is_its_own(modules):
    """What the source draws is what the noise draws: no other takes its place."""
    value = np.zeros(2)
    drawn = Simulation(7).release(
        modules["logistic-linucb"].LOGISTIC, noise_pending(value), scale=1.0, shift=1.0, index=3
    )
    own = modules["logistic-linucb"].LOGISTIC.simulate(Simulation(7).key, 3, 1.0, value)
    assert drawn.tolist() == own.tolist()


def noise_pending(value):
    from dpbandit.privacy.sources import Pending

    return Pending(value)
