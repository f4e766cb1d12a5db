"""Real noise is added to whole numbers, and no float is on the way to what leaves: for every proven
algorithm, for every form of it, for what logs start, estimates show and services measure. Two have
floats before their noise, as docs/privacy.md says, and pay for the rounding."""

import numpy as np
import pytest
import stretches
from bugs.evaluations import evaluation_log

import dpbandit as dpb
from dpbandit.auditor.draw import names_of_proven
from dpbandit.privacy import sources

pytestmark = pytest.mark.filterwarnings("ignore::dpbandit.errors.PrivacyWarning")
FLOATS = {"dgs", "toeplitz"}
FORMS = {
    "anytime": [
        {"local": 6},
        {"local": "never", "unit": ("spread", 2)},
        {"local": "never", "unit": ("person", 1.0), "rewards": "clicks"},
        {"local": "never", "policy": "sampled", "holdout": 0.25},
    ],
    "anytime-joint": [{"unit": ("person", 1.0)}, {"private_features": [0]}, {"holdout": 0.25}],
    "tree-gauss": [
        {"honaker": True},
        {"pan_private": True},
        {"shape": "instruments"},
        {"unit": ("user", 2)},
        {"unit": ("person", 1.0)},
    ],
    "private-linucb": [{"horizon": None, "pan_private": True}],
    "dp-klucb": [{"noise": "gaussian"}],
    "private-ucb": [{"horizon": None, "noise": "gaussian"}],
    "local": [{"noise": "gaussian"}],
    "joint": [{"unit": ("user", 2)}],
}
CASES = [(name, form) for name in names_of_proven() for form in [{}, *FORMS.get(name, [])]]


@pytest.fixture
def asked(monkeypatch):
    """What real noise was asked for: whole numbers, or floats."""
    seen = {"whole": 0, "floats": 0}
    add, floats = sources.add_whole_noise, sources.Real._release_floats

    def whole(noise, numbers, **given):
        assert all(type(number) is int for number in numbers)
        out = add(noise, numbers, **given)
        assert all(type(number) is int for number in out)
        seen["whole"] += 1
        return out

    def other(noise, value, **given):
        seen["floats"] += 1
        return floats(noise, value, **given)

    answer = sources.Response.answer

    def answered(noise, numbers, **given):
        assert all(type(number) is int for number in numbers)
        seen["whole"] += 1
        return answer(noise, numbers, **given)

    monkeypatch.setattr(sources, "add_whole_noise", whole)
    monkeypatch.setattr(sources.Real, "_release_floats", staticmethod(other))
    monkeypatch.setattr(sources.Response, "answer", answered)
    return seen


def made(name, form, backend):
    contexts = np.eye(4) if "ucb" in name else np.eye(4) * 0.9
    given = {"dim": 4, "epsilon": 1.0, "delta": 1e-5, "horizon": 16, "reward_range": (0, 1)}
    if "shape" in form:
        given["public_contexts"] = contexts
    if name.startswith("anytime"):
        given |= {"first_release": 2, "ratio": 1.5, "knee": 6.0}
    if name == "dp-klucb":
        given["first_release"] = 2
    return dpb.make(name, backend=backend, **{**given, **form}), contexts


@pytest.mark.parametrize("backend", ["core", "reference"])
@pytest.mark.parametrize(("name", "form"), CASES, ids=lambda part: str(part))
def test_real_noise_is_added_to_whole_numbers(name, form, backend, asked):
    bandit, contexts = made(name, form, backend)
    for t in range(16):
        who = {} if bandit.options.unit == "reward" else {"user": "ann" if t % 3 else "bob"}
        bandit.update(contexts[t % 4], float(t % 2), **who)
    kind, other = ("floats", "whole") if name in FLOATS else ("whole", "floats")
    assert asked[kind] > 0 or name == "random"
    assert asked[other] == 0


@pytest.mark.parametrize(
    "name", ["anytime", "anytime-joint", "tree-gauss", "toeplitz", "dgs", "adac-oful"]
)
def test_a_log_is_a_whole_number(name, asked):
    pa = pytest.importorskip("pyarrow")
    log = pa.table(
        {"x": (np.tile(np.eye(4), (5, 1)) * 0.9).tolist(), "reward": np.arange(20) % 2.0}
    )
    given = {"epsilon": 1.0, "delta": 1e-5, "horizon": 16, "reward_range": (0, 1)}
    dpb.warm_start(log, name, context="x", dim=4, **given)
    assert asked == {"whole": 1, "floats": 0}


@pytest.mark.parametrize("release", [(1.0, 1e-4), 1.0])
def test_an_estimate_is_a_whole_number(release, asked):
    log, *_ = evaluation_log("reward")
    given = {"items": np.eye(1), "reward_range": (0, 1), "propensity": "p", "clip": 4.0}
    dpb.replay(log, "random", release=release, **given)
    assert asked == {"whole": 1, "floats": 0}


@pytest.mark.parametrize("algorithm", ["tree-gauss", "private-linucb"])
def test_a_stretch_is_a_whole_number(algorithm, asked):
    config = stretches.config_of(algorithm, horizon=16)
    rounds = stretches.rounds_of([1.0] * 10, kinds=[stretches.FULL] * 10)
    _, _, seen, _ = stretches.released(config, rounds)
    assert len(seen) == 2
    assert asked["floats"] == 0
    assert asked["whole"] >= 2
