"""Judges of designs: their numbers by the formulas of docs/privacy.md, and parts of one's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from judges.bandits import BANDITS, made, pool
from judges.common import ROUNDS, close, judge, refused
from judges.fading import len_most
from judges.noises import noises


@judge
def designs_fit_together() -> Any:
    import dataclasses

    from dpbandit.design import keys_for
    from dpbandit.privacy.noise import GAUSSIAN, LAPLACE
    from dpbandit.release import Tree

    design = made("gauss").design
    refused("OptionError", lambda: dataclasses.replace(design, noise=LAPLACE))
    other = dataclasses.replace(design.release)
    object.__setattr__(other, "noise", LAPLACE)
    refused("OptionError", lambda: dataclasses.replace(design, release=other))

    class Mine(Tree):
        name = "tree"
        in_core = True

    refused("OptionError", lambda: dataclasses.replace(design, release=Mine(GAUSSIAN, 8, 1.0, 1.0)))

    class Elsewhere(Tree):
        name = "elsewhere"
        in_core = False

    refused(
        "OptionError", lambda: dataclasses.replace(design, release=Elsewhere(GAUSSIAN, 8, 1.0, 1.0))
    )
    assert design.not_in_core == []
    assert design.source(made("gauss").options).kind == "simulation"
    assert len(set(keys_for(4).values())) == 3
    assert keys_for(4) == keys_for(4)
    one, two = keys_for(None), keys_for(None)
    assert one != two
    refused("NoiseError", lambda: made("laplace-l2", seed=None))
    refused("NoiseError", lambda: made("joint, wishart", seed=None))
    for wrong in (
        ("user", 0),
        ("user", 1.5),
        ("user", True),
        ("user",),
        "user",
        ("reward", 2),
        3,
        (),
    ):
        refused("OptionError", lambda w=wrong: made("gauss", unit=w))
    assert made("gauss", unit=("user", np.int64(3))).options.moves_per_unit == 3
    assert made("gauss", unit=["user", 3.0]).options.protects.cap == 3
    for name, options in (
        ("laplace", {"shape": "instruments", "public_contexts": pool()}),
        ("honaker", {"pan_private": True}),
        ("honaker", {"horizon": None}),
        ("dgs", {"pan_private": True}),
        ("joint", {"context_noise": 0.1}),
        ("arms", {"context_noise": 0.1}),
        ("arms", {"max_norm": 0.5}),
        ("anytime", {"window": 0.6}),
        ("anytime", {"ratio": 1.0}),
        ("gauss", {"reward_range": (1e12, 1e12 + 1)}),
        ("gauss", {"backend": "nothing"}),
        ("gauss", {"noise": "laplace"}),
        ("gauss", {"shape": "ellipsoid"}),
        ("joint", {"noise": "laplace"}),
    ):
        refused("OptionError", lambda n=name, o=options: made(n, **o))
    return str(made("gauss"))


@judge
def parts_that_leave_something_out_are_refused() -> Any:
    """Noises, releases and algorithms of one's own."""
    import dpbandit as dpb
    from dpbandit.algorithms import registry
    from dpbandit.privacy import noise as table
    from dpbandit.privacy.noises.base import Noise
    from dpbandit.privacy.noises.gaussian import Gaussian
    from dpbandit.release.base import PythonRelease, Release
    from dpbandit.release.tree import Tree

    words = {"name": "mine", "description": "x", "norm": 2, "currency": "mu²", "notion": "gdp"}
    words |= {"has_real_source": False, "in_core": False, "matrices": None}
    for left_out in words:
        kept = {k: v for k, v in words.items() if k != left_out}
        refused("TypeError", lambda k=kept: type("Mine", (Noise,), k))
    for norm in (0, 3, None):
        refused("TypeError", lambda n=norm: type("Mine", (Noise,), {**words, "norm": n}))
    for norm in (1, 2):
        type("Mine", (Noise,), {**words, "norm": norm})
    refused("TypeError", lambda: type("Mine", (Gaussian,), {}))
    mine = type("Mine", (Gaussian,), {"name": "mine", "cost": lambda self, shift, scale: 7.0})
    assert not mine.in_core
    assert not mine.has_real_source
    assert mine.costs is Noise.costs
    close(mine().costs(np.ones((2, 1)), np.ones(2)), [7.0, 7.0])
    claims = type("Mine", (Gaussian,), {"name": "mine", "in_core": True, "has_real_source": True})
    assert claims.in_core
    assert claims.has_real_source
    assert claims.costs is Gaussian.costs
    for left_out in ("name", "in_core"):
        kept = {k: v for k, v in {"name": "m", "in_core": False}.items() if k != left_out}
        refused("TypeError", lambda k=kept: type("Mine", (Release,), k))
        refused("TypeError", lambda k=kept: type("Mine", (Tree,), k))
    refused("OptionError", lambda: table.add(Gaussian()))
    refused("OptionError", lambda: table.find_noise("gausian"))
    refused("OptionError", lambda: table.find_noise("laplace", ("gaussian",)))
    assert table.find_noise(table.LAPLACE, ("laplace",)) is table.LAPLACE

    class Every(PythonRelease):
        """Every round's item is shown with noise, in a lane of its own."""

        name = "every"
        in_core = False

        @staticmethod
        def draws(dim, horizon):
            return dim * 2

        def scale(self, t):
            return self.sensitivity * self.noise.multiplier(self.budget, 1)

        def lane(self, t):
            return "rounds"

        def room(self, engine):
            pass

        def squares(self, t):
            return np.asarray(t) * self.scale(1) ** 2

        def sums(self, dim):
            from dpbandit.release.base import Sums

            class Shown(Sums):
                total = np.zeros(2)

                def add(self, t, item):
                    return item

                def publish(self, t, noisy):
                    self.total = self.total + noisy
                    return self.total

                def fields(self):
                    return {}

            return Shown()

    from dpbandit.algorithms.moments import on_moments

    before = dict(registry.ALGORITHMS)
    try:
        dpb.register("every", design=lambda name, o: on_moments(name, o, "gaussian", release=Every))
        bandit = dpb.make("every", dim=2, epsilon=1.0, delta=1e-5, horizon=9, seed=0)
        assert bandit.backend == "reference"
        for _ in range(4):
            bandit.update([0.6, 0.8], 0.5)
        close(bandit.ledger.total, bandit.claim.mu**2, 1e-8)
        charge = bandit.release.charge(bandit.engine, 1)
        close(charge.shift, bandit.release.sensitivity, 1e-15)
        spec = bandit.release.core()
        assert np.isnan(spec["multipliers"]).all()
        assert len(spec["multipliers"]) == 63
        refused("OptionError", lambda: dpb.register("every", lambda **o: None))
        refused("OptionError", lambda: dpb.register("tree-gauss", lambda **o: None, replace=True))
        refused("OptionError", lambda: dpb.register("another"))
        refused("OptionError", lambda: dpb.register("another", len, design=len))
        refused("OptionError", lambda: dpb.register("another", len, options=("x",)))
        refused("OptionError", lambda: dpb.register("another", 3))
        dpb.register("every", lambda **o: "made", replace=True)
        assert dpb.make("every", dim=2) == "made"
        assert registry.find("every").black_box
        dpb.register("wrong", design=lambda name, o: "no design")
        refused("OptionError", lambda: dpb.make("wrong", dim=2))
        registry.know(before)
    finally:
        registry.ALGORITHMS.clear()
        registry.ALGORITHMS.update(before)
    refused("UnknownAlgorithmError", lambda: dpb.make("nothing of that name", dim=2))
    return [bandit.theta, bandit.claim.mu]


@judge
def logs_are_refused_where_nothing_is_proven() -> Any:
    """Which bandits may start from a log; the reasons are words."""
    from dpbandit.logs.enter import why_not

    never = (
        "random",
        "joint",
        "local",
        "arms",
        "batches",
        "published",
        "pan-private",
        "perturbed",
        "theory",
        "figure",
    )
    # Directions of a spread user are not in a log, nor is a whitener that public contexts shape.
    nobody = ("anytime, spread", "pair, known", "linucb, forgetful")
    seen = []
    for label in BANDITS:
        reason = why_not(made(label))
        assert isinstance(reason, str)
        expected = any(word in label for word in never) or label in nobody
        assert bool(reason) == expected, (label, reason)
        assert isinstance(made(label).release.no_log(), str)
        seen.append(reason)
    return seen


@judge
def pairs_have_the_numbers_of_the_documentation() -> Any:
    import dpbandit as dpb

    given = {"dim": 3, "epsilon": 1.5, "delta": 1e-4, "reward_range": (0.25, 1.75), "seed": 0}
    bandit = dpb.make("anytime-joint", **given)
    release, knee = bandit.release, 45 * 3 * 2 * 0.375 / bandit.claim.mu
    assert (release.dim, release.n, release.ratio) == (14, 4, 1.025)
    close(release.knee, knee, 1e-9)
    assert (release.first, release.change) == (math.ceil(0.09 * knee), math.ceil(0.18 * knee))
    close(release.sensitivity, 1 + 2e-9 + math.sqrt(14) * STEP, 1e-15)
    assert (release.growth, release.versions) == (3.0, 8)
    assert (release.first_eta2, release.later_eta2) == (0.25, 0.125)
    close(bandit.spec["window"], 0.375 * 1.5, 1e-15)
    close(bandit.spec["reward_variance"], 1.5**2 / 16, 1e-15)
    assert bandit.values_depend_on_releases
    assert bandit.contexts_are_private
    tiny = dpb.make("anytime-joint", **given, knee=0.1, first_release=7)
    assert (tiny.release.knee, tiny.release.first, tiny.release.change) == (0.1, 7, 1)
    assert dpb.make("anytime-joint", **given, knee=0.1).release.first == 1
    assert dpb.make("anytime-joint", **given, knee=1e12).release.knee == 1e9
    for wrong in ({"window": 1.1}, {"ratio": 1.0}, {"ratio": 10.5}, {"context_noise": 0.1}):
        refused("OptionError", lambda w=wrong: dpb.make("anytime-joint", **given, **w))
    real = dpb.make("anytime-joint", **{**given, "seed": None})
    numbers = 14 * (len_most(1.025) + 1)
    close(real.release.budget, noises()["gaussian"].budget(real.options, numbers), 1e-15)
    # Of people: each of so many small moves may be rounded, and persons' residuals reach to C.
    for label, n, items in (
        ("pair, persons", 14, 2**20),
        ("anytime, persons", 4, 2**20),
        ("gauss, persons", 3, 2**20),
        ("anytime, spread", 4, 3),
    ):
        found = made(label).release.sensitivity
        close(found - 1 - 2e-9, 1.001 * items * math.sqrt(n) * STEP, 1e-9, 1e-15)
    person = made("pair, persons", unit=("person", 2.5), knee=None)
    close(person.release.knee, 45 * 3 * 2 * 2.5 / 1.25 / person.claim.mu, 1e-9)
    assert (person.release.first_eta2, person.release.later_eta2) == (0.125, 0.125)
    assert (person.spec["reach"], person.spec["window"]) == (2.5, 1.25)
    assert bandit.spec["reach"] == bandit.spec["window"]
    assert (person.release.persons, release.persons) == (True, False)
    return [release.scale, real.release.budget]


STEP, ZETA = 2.0**-40, 0.05


def numbers_of(label: str, **options: Any) -> Any:
    return made(label, **options).spec


@judge
def designs_have_the_numbers_of_the_documentation() -> Any:
    """What engines are given, by the formulas of docs/privacy.md and the defaults of `dpb.make`."""
    seen: list[Any] = []
    for label, norm, one in (
        ("laplace", 1, math.sqrt(3)),
        ("gauss", 2, 1.0),
        ("laplace-l2", 2, 1.0),
    ):
        spec = numbers_of(label)
        exact = one * (1 + 2e-9) + STEP * (3 if norm == 1 else math.sqrt(3))
        close(spec["sensitivity"], exact, 1e-15)
        assert spec["l1_limit"] == math.inf
        seen.append(spec["sensitivity"])
    longest = np.abs(pool()).sum(axis=1).max()
    for label, options in (("laplace, known", {}), ("laplace, known", {"max_norm": 2.0})):
        spec = numbers_of(label, **options)
        close(spec["l1_limit"], longest, 1e-15)
        most = options.get("max_norm", 1.0)
        close(spec["sensitivity"], longest / most * (1 + 2e-9) + 3 * STEP, 1e-15)
    assert numbers_of("laplace, known", context_noise=0.1)["l1_limit"] == math.inf
    assert numbers_of("laplace, known", noise="gaussian")["l1_limit"] == math.inf
    short = numbers_of(
        "laplace, known", max_norm=0.9, public_contexts=np.full((1, 3), 0.9 / math.sqrt(3))
    )
    close(short["l1_limit"], 0.9 * math.sqrt(3), 1e-12)
    for label, norm in (("dgs", 2), ("dgs, laplace, ball", 1)):
        bandit = made(label)
        exact = (1 + 2e-9 + STEP * (3 if norm == 1 else math.sqrt(3))) * bandit.options.width
        close(bandit.spec["sensitivity"], exact, 1e-15)
    assert len(numbers_of("dgs, known")["public_arms"]) == 12
    assert len(numbers_of("dgs, known", context_noise=0.1)["public_arms"]) == 0
    close(numbers_of("local")["sensitivity"], 1 + 2e-9 + STEP, 1e-15)
    arms = numbers_of("arms")
    close(arms["sensitivity"], 1 + 2e-9 + STEP, 1e-15)
    assert (arms["privacy_bonus"], arms["published_term"], arms["failure"]) == (0.75, False, ZETA)
    published = numbers_of("arms, split")
    assert (published["privacy_bonus"], published["published_term"]) == (0.0, True)
    for noise, power in (("laplace", 1), ("gaussian", 2)):
        whole, split = (
            numbers_of("arms", noise=noise, split_budget=flag)["multipliers"]
            for flag in (False, True)
        )
        close(split, whole * 3 ** (1 / power), 1e-12)
    assert numbers_of("arms", privacy_bonus=0.0)["privacy_bonus"] == 0.0
    batches = made("batches", ratio=1.25, first_release=None)
    assert (batches.spec["alpha"], batches.spec["reward_variance"]) == (1.0, 0.0)
    assert made("batches", alpha="theory").spec["alpha"] == 1.0
    for epsilon, first in ((1.0, 11), (0.1, 113), (90.0, 1)):
        assert numbers_of("batches", epsilon=epsilon, first_release=None)["first"] == first
        found = numbers_of("batches", epsilon=epsilon)
        close(found["scale"], (1 + 2e-9 + STEP) / epsilon, 1e-15)
    assert numbers_of("batches, gauss")["ratio"] == 1.25
    close(numbers_of("episodes")["growth"], math.log(2), 1e-15)
    close(numbers_of("episodes", determinant_growth=0.4)["growth"], math.log(1.4), 1e-15)
    for real in (False, True):
        seed = {"seed": None} if real else {}
        assert made("toeplitz", **seed).release.real == real
    assert made("toeplitz").release.dim == 3
    import dpbandit as dpb

    given = {"dim": 3, "epsilon": 1.5, "delta": 1e-4, "reward_range": (0.25, 1.75), "seed": 0}
    plain = dpb.make("anytime", local="never", find_scale=False, **given)
    release, mu = plain.release, plain.claim.mu
    assert (release.ratio, release.dim) == (1.025, 4)
    answers = dpb.make("anytime", find_scale=False, **given)
    assert (answers.claim.notion, answers.claim.mu) == ("parallel", None)
    variance = 1 / math.tanh(0.75) ** 2 / 4
    assert answers.spec["local"] == math.floor(2 * 4 / (mu * mu * variance))
    close(answers.spec["local_variance"], 4 * variance * (0.375 * 1.5) ** 2, 1e-12)
    close(release.knee, 45 * 3 * 2 * 0.375 / mu, 1e-9)
    assert release.first == max(1, math.ceil(release.knee / 20))
    close(release.sensitivity, 1 + 2e-9 + 2 * STEP, 1e-15)
    usual = plain.spec
    close(usual["window"], 0.375 * 1.5, 1e-15)
    close(usual["reward_variance"], 1.5**2 / 16, 1e-15)
    assert usual["first"] == release.first
    assert (usual["empirical_bayes"], usual["neglected"]) == (True, True)
    assert usual["memories"].tolist() == [27_000, 9_000, 4_000, 2_000, 1_000]
    assert usual["life"] == release.life == 10_000
    for more, alpha in (
        ({}, 0.6),
        ({"explore": "everything"}, 0.3),
        ({"policy": "sampled"}, 0.8),
        ({"rewards": "clicks", "reward_range": (0.0, 1.5)}, 0.5),
    ):
        assert dpb.make("anytime", **{**given, **more}).alpha == alpha
    assert made("pair").alpha == 0.2
    slow = dpb.make("anytime", dim=3, epsilon=1.5, delta=1e-4, knee=1e5, seed=0).release
    assert (slow.life, slow.first) == (12e5, 5_000)
    close(made("anytime, known", knee=1e12).release.knee, 1e9, 1e-15)
    for label, options, centre, furthest, share in (
        ("joint", {}, 0.0, 1.75, 1.0),
        ("joint, centred", {}, 1.0, 0.75, 1.0),
        (
            "joint",
            {"reward_weight": 0.5, "max_norm": 2.0, "ridge": 0.3, "shift": 1.5},
            0.0,
            1.75,
            0.5,
        ),
        ("joint", {"reward_range": (-3.0, 1.0)}, 0.0, 3.0, 1.0),
    ):
        spec = numbers_of(label, **options)
        most = options.get("max_norm", 1.0)
        close(spec["size"], most**2 * (1 + share), 1e-15)
        close(spec["reward_weight"], math.sqrt(share) * most / furthest, 1e-15)
        assert spec["reward_centre"] == centre
        assert spec["shift"] == options.get("shift", 2.0)
        assert spec["ridge"] == options.get("ridge", 1.0)
        close(spec["log_rounds"], math.log(4 * ROUNDS / ZETA), 1e-15)
        margin = 4e-9 + 2 * math.sqrt(10) * STEP
        close(spec["sensitivity"], math.sqrt(2) * (1 + margin), 1e-15)
    wishart = numbers_of("joint, wishart")
    rounded = 2 * 4 * math.sqrt(10) * STEP / 2
    close(wishart["size"], 2 * (1 + 4e-9 + 2 * math.sqrt(10) * STEP + rounded), 1e-15)
    assert wishart["sensitivity"] == 1.0
    close(numbers_of("joint, unknown horizon")["log_rounds"], math.log(4 / ZETA), 1e-15)
    for label, said in (("joint", False), ("joint, wishart", True)):
        assert any("quadrature" in words for words in made(label).claim.assumptions) == said
    second = pool().T @ pool() / 12
    for label, longest_of in (("gauss, ellipsoid", True), ("gauss, instruments", False)):
        spec = numbers_of(label)
        shape, back = np.asarray(spec["shape"]), np.asarray(spec["unshape"])
        close(shape @ back, np.eye(3), 1e-9, 1e-9)
        values, vectors = np.linalg.eigh(second)
        roots = np.sqrt(values + 1e-4 * values.mean())
        close(shape, vectors / roots @ vectors.T, 1e-9, 1e-12)
        floor = np.linalg.norm(pool() @ shape, axis=1).max() if longest_of else 0.0
        close(spec["floor"], floor, 1e-12)
    flat = np.array([[1.0, 0.0, 0.0]])
    spec = numbers_of("gauss, instruments", public_contexts=flat)
    assert np.isfinite(np.asarray(spec["shape"])).all()
    for label, notion in (
        ("dgs published", "approximate"),
        ("dgs figure", "none"),
        ("linucb", "none"),
    ):
        assert made(label).claim.notion == notion
    assert numbers_of("dgs published")["form"] == "simplified"
    for name, options in (("clips", {"clip_rewards": True}), ("clips", {})):
        assert numbers_of("linucb", **options)[name] == bool(options)
    assert made("gauss").alpha == 0.3
    seen.append(str(sorted(numbers_of("gauss"))))
    return seen


@judge
def the_table_of_algorithms_is_whole() -> Any:
    import dpbandit as dpb
    from dpbandit.algorithms import registry
    from dpbandit.model import FORMAT

    assert FORMAT == 2
    seen = []
    for name, line in dpb.algorithms().items():
        for words in (line.description, line.claim, line.reference):
            assert isinstance(words, str)
            assert len(words) > 3
        assert callable(line.factory)
        assert isinstance(line.own_options, tuple)
        assert line.one_hot == (name in ("private-ucb", "dp-klucb"))
        assert not line.registered_by_user
        assert not line.black_box
        proven = made_claim(name)
        assert ("proven" in line.claim and "not proven" not in line.claim) == (
            proven == "proven"
        ), name
        seen.append(f"{line.description} {line.claim} {line.reference} {line.own_options}")
    assert registry.find("dgs").own_options == ("smallest_eigenvalue",)
    model = made("gauss").model()
    assert model.dim == 3
    close(model.theta, np.zeros(3))
    return seen


def made_claim(name: str) -> str:
    label = next(label for label, (algorithm, _, _) in BANDITS.items() if algorithm == name)
    return str(made(label).claim.status)
