"""Bad input raises a named error that says what was given and what is allowed, and changes nothing at all."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import dpbandit as dpb
from dpbandit import errors

GOOD = [0.6, 0.8]


def fresh(name="dgs", **given):
    bandit = dpb.make(
        name, **({"dim": 2, "epsilon": 1.0, "delta": 1e-3, "horizon": 5, "seed": 1} | given)
    )
    bandit.update(GOOD, 0.5)
    return bandit


def fingerprint(bandit):
    arrays = {name: array.copy() for name, array in bandit.engine.fields().items()}
    return (
        arrays,
        bandit.ledger.to_dict(),
        bandit.clipped,
        bandit.over_cap,
        dict(bandit.user_counts),
    )


def assert_untouched(bandit, before):
    after = fingerprint(bandit)
    assert all((after[0][name] == before[0][name]).all() for name in before[0])
    assert after[1:] == before[1:]


UPDATES = [
    (([1.0], 0.5), errors.ShapeError, r"\(arms, 2\)|shape"),
    (([[0.1, 0.2]], 0.5), errors.ShapeError, r"\(2,\) with one reward"),
    (([[0.1, 0.2]], [0.5, 0.6]), errors.ShapeError, "batch"),
    ((np.zeros((2, 2, 2)), np.zeros(2)), errors.ShapeError, "batch"),
    ((1, 0.5), errors.ShapeError, r"not its number: contexts\[arm\]"),
    (([math.nan, 0.0], 0.5), errors.NotFiniteError, "NaN or infinity"),
    (([math.inf, 0.0], 0.5), errors.NotFiniteError, "NaN or infinity"),
    (([1e200, 1e200], 0.5), errors.NormError, "above max_norm"),
    (([2.0, 0.0], 0.5), errors.NormError, "norm 2, above max_norm = 1"),
    ((GOOD, math.nan), errors.NotFiniteError, "reward"),
    ((GOOD, -math.inf), errors.NotFiniteError, "reward"),
    ((GOOD, "yes"), errors.ShapeError, "numbers"),
    ((GOOD, None), errors.ShapeError, "numbers"),
    ((["a", "b"], 0.5), errors.ShapeError, "numbers"),
    (([GOOD, [0.1]], [0.5, 0.5]), errors.ShapeError, "rectangular"),
    (([GOOD, [3.0, 4.0]], [0.5, 0.5]), errors.NormError, "norm 5"),
    (([GOOD] * 5, [0.5] * 5), errors.HorizonError, "horizon = 5 and has learned 1 rewards; 5 more"),
]


@pytest.mark.parametrize("name", ["linucb", "dgs", "tree-gauss", "private-linucb", "local"])
@pytest.mark.parametrize(("arguments", "error", "words"), UPDATES)
def test_a_bad_update_is_named_and_changes_nothing(name, arguments, error, words):
    bandit = fresh(name)
    before = fingerprint(bandit)
    with pytest.raises(error, match=words):
        bandit.update(*arguments)
    assert_untouched(bandit, before)


@pytest.mark.parametrize(
    "contexts",
    [[], [[]], [1.0, 2.0], [[1.0]], [[math.nan, 0.0]], [[9.0, 9.0]], "arms", None, [[None, 1]], 2],
)
def test_a_bad_select_is_named_and_changes_nothing(contexts):
    bandit = fresh()
    before = fingerprint(bandit)
    with pytest.raises(errors.DpbanditError):
        bandit.select(contexts)
    assert_untouched(bandit, before)


@pytest.mark.parametrize("k", [0, 3, -1, 1.5, True, "2"])
def test_a_bad_slate_size_is_named(k):
    bandit = fresh()
    with pytest.raises(errors.OptionError, match="k must be a whole number from 1 to the 2 arms"):
        bandit.select([GOOD, GOOD], k=k)


def test_past_the_horizon_it_still_ranks():
    bandit = fresh()
    bandit.update([GOOD] * 4, [0.1] * 4)
    before = fingerprint(bandit)
    with pytest.raises(errors.HorizonError, match="still ranks"):
        bandit.update(GOOD, 0.5)
    assert_untouched(bandit, before)
    assert bandit.select([GOOD, [1.0, 0.0]]) in (0, 1)


def test_a_missing_user_is_named_and_changes_nothing():
    bandit = dpb.make(
        "tree-gauss", dim=2, epsilon=1.0, delta=1e-3, horizon=5, seed=1, unit=("user", 1)
    )
    before = fingerprint(bandit)
    for user in (None, ["a", "b"], [None]):
        with pytest.raises(errors.OptionError, match="needs user="):
            bandit.update(GOOD, 0.5, user=user)
    assert_untouched(bandit, before)


OPTIONS = [
    ({"dim": 0}, "dim must be a whole number of at least 1"),
    ({"dim": 2.5}, "dim"),
    ({"dim": 10**6}, "dim must be at most 100,000, not 1,000,000"),
    ({"epsilon": 0}, "epsilon must be a number above 0"),
    ({"epsilon": -1.0}, "epsilon"),
    ({"epsilon": math.nan}, "epsilon"),
    ({"delta": 0.0}, "delta must lie strictly between 0 and 1"),
    ({"delta": 1.0}, "delta"),
    ({"horizon": 0}, "horizon must be a whole number of at least 1 .None for unknown."),
    ({"horizon": 2.5}, "horizon"),
    ({"ridge": 0.0}, "ridge must be a finite number above 0"),
    ({"max_norm": -1.0}, "max_norm"),
    ({"alpha": -0.1}, "alpha"),
    ({"alpha": "wide"}, "alpha must be a number of at least 0, or 'theory'"),
    ({"reward_range": (1, 0)}, "low < high"),
    ({"reward_range": 3}, "two numbers"),
    ({"reward_range": (0, math.inf)}, "finite"),
    ({"unit": "user"}, "unit must be 'reward', "),
    ({"unit": ("user", 0)}, "at least 1"),
    ({"seed": -1}, "seed"),
    ({"noise": "gauss"}, "did you mean 'gaussian'"),
    ({"backend": "gpu"}, "backend must be 'core' or 'reference'"),
    ({"public_contexts": [[1.0]]}, "public_contexts must have shape"),
    ({"public_contexts": [[math.nan, 1.0]]}, "public_contexts hold NaN"),
]


@pytest.mark.parametrize(("wrong", "words"), OPTIONS)
def test_a_bad_option_says_what_is_allowed(wrong, words):
    with pytest.raises(errors.DpbanditError, match=words):
        dpb.make("dgs", **({"dim": 2, "epsilon": 1.0, "delta": 1e-3, "seed": 1} | wrong))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("tree-gaus", "tree-gauss"), ("LinUCB", "linucb"), ("private_ts", "private-ts")],
)
def test_an_unknown_algorithm_gets_the_nearest_name(wrong, right):
    with pytest.raises(
        errors.UnknownAlgorithmError,
        match=f"no algorithm is called '{wrong}': did you mean '{right}'",
    ):
        dpb.make(wrong, dim=2)


def test_matrices_that_do_not_fit_into_memory_are_an_error_with_their_size():
    def design(*_):
        raise MemoryError

    dpb.register("endless", design=design, replace=True)
    with pytest.raises(errors.OptionError, match=r"dim = 40,000: .* 11\.9 GiB"):
        dpb.make("endless", dim=40_000)


def test_a_run_needs_a_world_and_a_picture_has_no_file_name():
    with pytest.raises(errors.OptionError, match=r"'synthetic' is not a world: .*Synthetic\(\)"):
        dpb.run("synthetic", ["linucb"], horizon=5)
    results = dpb.run(dpb.worlds.Synthetic(), ["random"], horizon=5, seeds=1)
    with pytest.raises(errors.OptionError, match=r"savefig"):
        results.plot("fig.png")
    for seeds in (1.5, "3", None):
        with pytest.raises(errors.OptionError, match="seeds must be"):
            dpb.run(dpb.worlds.Synthetic(), ["random"], horizon=5, seeds=seeds)


def test_texts_are_called_text_and_a_missing_folder_and_missing_facts_are_named(tmp_path):
    bandit = dpb.make("linucb", dim=2, seed=0)
    with pytest.raises(errors.ShapeError, match="contexts must be numbers, not text"):
        bandit.select(["a", "b"])
    with pytest.raises(errors.ShapeError, match="rewards must be numbers, not text"):
        bandit.update(GOOD, "clicked")
    nowhere = tmp_path / "missing" / "bandit"
    for write in (bandit.save, bandit.export):
        with pytest.raises(errors.SaveError, match=f"cannot write {nowhere}: No such file"):
            write(nowhere)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(errors.SaveError, match=r"a file that bandit\.export wrote"):
        dpb.load(tmp_path / "other.json")
    with pytest.raises(errors.OptionError, match=r"recommend needs arms=.*, delta=.* as well"):
        dpb.recommend(dim=2, epsilon=1.0)


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        elements=st.floats(-3, 3) | st.sampled_from([math.nan, math.inf]),
    ),
    st.floats(-5, 5) | st.sampled_from([math.nan, math.inf]),
)
def test_whatever_is_given_either_works_or_changes_nothing(contexts, reward):
    bandit = fresh("tree-gauss")
    before = fingerprint(bandit)
    try:
        bandit.update(contexts, reward)
    except errors.DpbanditError:
        assert_untouched(bandit, before)
    else:
        assert bandit.rounds == 2 or contexts.size == 0
        assert np.isfinite(bandit.theta).all()


CROWDED = """
import resource
import dpbandit as dpb
dpb.make(NAME, dim=2, epsilon=1.0, delta=1e-6, reward_range=(0, 1), seed=1)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
try:
    dpb.make(NAME, dim=20_000, epsilon=1.0, delta=1e-6, reward_range=(0, 1), seed=1)
except dpb.errors.OptionError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process as Linux does")
@pytest.mark.parametrize("name", ["anytime", "toeplitz"])
def test_a_bandit_that_does_not_fit_into_memory_is_refused_and_ends_no_process(name):
    code = CROWDED.replace("NAME", repr(name))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(f"{name} does not fit into memory with dim = 20,000")
