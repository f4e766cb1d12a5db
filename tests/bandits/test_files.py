"""A saved and loaded bandit continues bit for bit, and an exported model holds public numbers only."""

import json
import os
import stat

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.errors import SaveError

CASES = [
    ("linucb", {}),
    ("random", {}),
    ("private-linucb", {}),
    ("private-linucb", {"pan_private": True}),
    ("dgs", {}),
    ("dgs", {"noise": "laplace", "horizon": None}),
    ("dgs", {"public_contexts": np.eye(3)}),
    ("dgs-published", {"smallest_eigenvalue": 0.1, "form": "full"}),
    ("local", {"noise": "gaussian"}),
    ("tree-gauss", {"horizon": None}),
    ("tree-gauss", {"unit": ("user", 3)}),
    ("tree-gauss", {"context_noise": 0.1}),
    ("tree-gauss", {"honaker": True}),
    ("toeplitz", {"shape": "instruments", "public_contexts": np.eye(3) * 0.9}),
    ("private-ts", {}),
    ("adac-oful", {}),
    ("anytime", {"first_release": 3, "ratio": 1.2}),
    ("anytime", {"first_release": 3, "public_contexts": np.eye(3) * 0.9, "context_noise": 0.1}),
]


def step(bandit, rng):
    x = rng.normal(size=(4, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    arm = bandit.select(x)
    user = {"user": str(rng.integers(20))} if bandit.options.unit != "reward" else {}
    bandit.update(x[arm], float(rng.normal()), **user)
    return arm


@pytest.mark.filterwarnings("ignore:a context that is not among")
@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_loaded_bandit_continues_bit_for_bit(name, options, tmp_path):
    given = {"dim": 3, "epsilon": 1.0, "delta": 1e-3, "horizon": 300, "seed": 42} | options
    bandit = dpb.make(name, **given)
    rng = np.random.default_rng(0)
    for _ in range(77):
        step(bandit, rng)
    bandit.save(tmp_path / "bandit.npz")
    copy = dpb.load(tmp_path / "bandit.npz")
    assert copy.claim == bandit.claim
    assert copy.spent == bandit.spent
    assert copy.ledger == bandit.ledger
    assert (copy.clipped, copy.over_cap, copy.identity) == (bandit.clipped, bandit.over_cap, bandit.identity)
    one, two = np.random.default_rng(9), np.random.default_rng(9)
    for _ in range(60):
        assert step(bandit, one) == step(copy, two)
        assert (bandit.theta == copy.theta).all()
    assert copy.ledger == bandit.ledger


def test_loading_a_real_bandit_redraws_nothing(tmp_path):
    bandit = dpb.make("tree-gauss", dim=2, epsilon=1.0, delta=1e-3, horizon=8)
    bandit.update([[1.0, 0.0]] * 6, [0.5] * 6)
    bandit.save(tmp_path / "b")
    copy = dpb.load(tmp_path / "b")
    assert (copy.theta == bandit.theta).all()
    assert (copy.learner.tree.noisy == bandit.learner.tree.noisy).all()
    assert copy.claim.noise == "real"
    # Round 7 adds a node to the two in use (rounds 4 and 6): their noise must still be the same in both.
    for b in (bandit, copy):
        b.update([1.0, 0.0], 0.5)
    assert (copy.learner.tree.noisy[1:] == bandit.learner.tree.noisy[1:]).all()
    assert (copy.learner.tree.noisy[0] != bandit.learner.tree.noisy[0]).all()


def test_saved_files_are_for_the_owner_alone_and_replace_the_old_one_whole(tmp_path):
    path = tmp_path / "bandit.npz"
    path.write_text("old")
    os.chmod(path, 0o644)
    dpb.make("linucb", dim=2, seed=0).save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["bandit.npz"]


def test_a_bandit_that_learned_from_numpy_numbers_can_be_saved(tmp_path):
    bandit = dpb.make("anytime", dim=2, epsilon=1.0, delta=1e-3, reward_range=(0, 1), first_release=3, seed=0)
    for reward in np.linspace(0, 1.5, 22):
        bandit.update(np.array([1.0, 0.0]), reward)
    bandit.save(tmp_path / "bandit.npz")
    assert dpb.load(tmp_path / "bandit.npz").clipped == 7


def test_an_exported_model_ranks_like_the_bandit_and_holds_no_clean_number(tmp_path):
    bandit = dpb.make("dgs", dim=3, epsilon=1.0, delta=1e-3, horizon=50, seed=1)
    rng = np.random.default_rng(4)
    for _ in range(40):
        step(bandit, rng)
    bandit.export(tmp_path / "model.json")
    text = (tmp_path / "model.json").read_text()
    model = dpb.load(tmp_path / "model.json")
    assert set(json.loads(text)) == {
        "dpbandit_model",
        "name",
        "dim",
        "round",
        "alpha",
        "plays_at_random",
        "draws_from_posterior",
        "claim",
        "theta",
        "inverse_gram",
    }
    assert model.claim == bandit.claim
    for _ in range(30):
        x = rng.normal(size=(5, 3))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        assert model.select(x) == bandit.select(x)
    for array in (bandit.learner.tree.sums, bandit.learner.pending):
        for value in np.ravel(array):
            assert value == 0 or repr(float(value)) not in text


@pytest.mark.parametrize("content", [b"", b"not a bandit", b"{}", b'{"dpbandit_model": 99}', b"PK\x03\x04garbage"])
def test_a_file_that_is_no_bandit_is_named(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(SaveError):
        dpb.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SaveError, match="cannot read"):
        dpb.load(tmp_path / "nowhere")
