"""A saved and loaded bandit continues bit for bit, and an exported model holds public numbers only."""

import io
import json
import math
import os
import stat
import subprocess
import sys

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
    ("private-ucb", {}),
    ("dp-klucb", {"first_release": 3}),
    ("joint", {}),
    ("anytime", {"first_release": 3, "ratio": 1.2}),
    ("anytime", {"first_release": 3, "public_contexts": np.eye(3) * 0.9, "context_noise": 0.1}),
]


def step(bandit, rng):
    x = rng.normal(size=(4, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x = bandit.within(x)
    arm = bandit.select(x)
    user = {"user": str(rng.integers(20))} if bandit.options.unit != "reward" else {}
    bandit.update(x[arm], float(rng.normal()), **user)
    return arm


@pytest.mark.filterwarnings("ignore:a context is not among")
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
    assert (copy.clipped, copy.over_cap, copy.identity) == (
        bandit.clipped,
        bandit.over_cap,
        bandit.identity,
    )
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
    kept, drawn = copy.engine.fields()["noisy"], bandit.engine.fields()["noisy"]
    assert (kept == drawn).all()
    assert copy.claim.noise == "real"
    # Round 7 adds a node to the two in use (rounds 4 and 6): their noise must still be the same in both.
    for b in (bandit, copy):
        b.update([1.0, 0.0], 0.5)
    kept, drawn = copy.engine.fields()["noisy"], bandit.engine.fields()["noisy"]
    assert (kept[1:] == drawn[1:]).all()
    assert (kept[0] != drawn[0]).all()


def test_saved_files_are_for_the_owner_alone_and_replace_the_old_one_whole(tmp_path):
    path = tmp_path / "bandit.npz"
    path.write_text("old")
    os.chmod(path, 0o644)
    dpb.make("linucb", dim=2, seed=0).save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["bandit.npz"]


def test_a_bandit_that_learned_from_numpy_numbers_can_be_saved(tmp_path):
    bandit = dpb.make(
        "anytime", dim=2, epsilon=1.0, delta=1e-3, reward_range=(0, 1), first_release=3, seed=0
    )
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
        "claim",
        "policy",
        "max_norm",
        "l1_limit",
        "one_hot",
        "theta",
        "matrix",
    }
    assert model.claim == bandit.claim
    for _ in range(30):
        x = rng.normal(size=(5, 3))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        assert model.select(x) == bandit.select(x)
    fields = bandit.engine.fields()
    for value in (
        np.ravel(fields["sums_high"] * 2.0**64 + fields["sums_low"].view(np.uint64)) * 2.0**-40
    ):
        assert value == 0 or repr(float(value)) not in text


@pytest.mark.parametrize(
    "content",
    [b"", b"not a bandit", b"{}", b'{"dpbandit_model": 99}', b"PK\x03\x04garbage", b"\x80\x04junk"],
)
def test_a_file_that_is_no_bandit_is_named(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(SaveError) as refused:
        dpb.load(path)
    assert "pickle" not in str(refused.value)  # NumPy would recommend to load code


def test_one_array_of_numpy_is_no_bandit(tmp_path):
    """`np.load` opens it, and hands back an array where an archive is expected."""
    np.save(tmp_path / "x.npy", np.arange(3))
    with pytest.raises(SaveError, match="neither a saved bandit"):
        dpb.load(tmp_path / "x.npy")


@pytest.mark.parametrize("flag", [0x01, 0x20])
def test_a_damaged_flag_in_an_archive_is_named(tmp_path, flag):
    """zipfile then takes a part for encrypted, or patched, and raises RuntimeError."""
    path = tmp_path / "x.npz"
    dpb.make("linucb", dim=2).save(path)
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\x01\x02")
    content[directory + 8] |= flag
    path.write_bytes(content)
    with pytest.raises(SaveError, match="damaged"):
        dpb.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SaveError, match="cannot read"):
        dpb.load(tmp_path / "nowhere")


def saved(bandit, path, change):
    """A saved bandit whose arrays and record were changed on the way."""
    bandit.save(path)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    record = json.loads(arrays.pop("record").tobytes())
    change(record, arrays)
    packed = io.BytesIO()
    np.savez(packed, record=np.frombuffer(json.dumps(record).encode(), dtype=np.uint8), **arrays)
    path.write_bytes(packed.getvalue())
    return path


CHANGES = {
    "of 0.1": (
        lambda record, arrays: record.update(format=1),
        "Load it with dpbandit 0.1 and export its model",
    ),
    "of a later version": (
        lambda record, arrays: record.update(format=3),
        "has format 3; this version reads format 2",
    ),
    "an unknown entry": (
        lambda record, arrays: record.update(secret=1),
        "an unknown record 'secret'",
    ),
    "no ledger": (lambda record, arrays: record.pop("ledger"), "no record 'ledger'"),
    "an unknown array": (
        lambda record, arrays: arrays.update(field_extra=np.zeros(2)),
        "unknown array 'field_extra'",
    ),
    "no θ": (lambda record, arrays: arrays.pop("field_theta"), "no array 'field_theta'"),
    "another shape": (
        lambda record, arrays: arrays.update(field_theta=np.zeros(4)),
        "'theta' is float64 of shape",
    ),
    "another type": (
        lambda record, arrays: arrays.update(field_rounds=np.zeros(1)),
        "'rounds' is float64",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_save_with_anything_unknown_is_refused_by_name(change, tmp_path):
    bandit = dpb.make("tree-gauss", dim=3, epsilon=1.0, delta=1e-3, horizon=50, seed=1)
    bandit.update([1.0, 0.0, 0.0], 0.5)
    how, words = CHANGES[change]
    with pytest.raises(SaveError, match=words):
        dpb.load(saved(bandit, tmp_path / "b", how))
    assert dpb.load(saved(bandit, tmp_path / "b", lambda record, arrays: None)).rounds == 1


OLD = {
    "dpbandit_model": 1,
    "name": "tree-gauss",
    "dim": 2,
    "round": 7,
    "claim": {
        "unit": "one reward",
        "notion": "gdp",
        "epsilon": None,
        "delta": 1e-5,
        "mu": None,
        "status": "none",
        "noise": "real",
        "assumptions": ["some"],
    },
    "theta": [0.5, 0.1],
    "inverse_gram": [[0.1, 0.0], [0.0, 9.0]],
    "alpha": 0.3,
    "plays_at_random": False,
}


@pytest.mark.parametrize(
    ("flags", "policy"),
    [
        ({}, "ucb"),
        ({"draws_from_posterior": False}, "ucb"),
        ({"bonus_about_mean": True}, "centred-ucb"),
        ({"draws_from_posterior": True}, "thompson"),
        ({"plays_at_random": True}, "uniform"),
        ({"max_norm": 2.0, "l1_limit": None, "one_hot": True}, "ucb"),
    ],
)
def test_models_of_the_first_version_are_read(flags, policy, tmp_path):
    (tmp_path / "old.json").write_text(json.dumps({**OLD, **flags}))
    model = dpb.load(tmp_path / "old.json")
    assert model.policy.name == policy
    assert (model.name, model.dim, model.round, model.claim.epsilon) == (
        "tree-gauss",
        2,
        7,
        math.inf,
    )
    assert model.gate.one_hot is flags.get("one_hot", False)
    assert model.gate.max_norm == flags.get("max_norm", math.inf)
    if policy == "ucb":  # 0.1 + 0.9 against 0.5 + 0.3·√0.1
        assert model.select(np.eye(2)) == 1
        (tmp_path / "new.json").write_text(json.dumps(model.to_record()))
        assert dpb.load(tmp_path / "new.json").to_record() == model.to_record()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dpbandit_model": 3}, "format 3: this version reads formats 1 and 2"),
        ({"plays_at_random": True, "bonus_about_mean": True}, "plays by two rules"),
        ({"forgets": True}, "'forgets' that 0.1 did not have"),
        ({"theta": [1.0]}, "theta has shape"),
        ({"theta": [math.nan, 1.0]}, "finite"),
        ({"dpbandit_model": 2}, "no field 'policy'"),
        ({"dpbandit_model": 2, "policy": "greedy"}, "no policy is called 'greedy'"),
    ],
)
def test_a_model_with_anything_unknown_is_refused_by_name(change, words, tmp_path):
    (tmp_path / "old.json").write_text(json.dumps({**OLD, **change}))
    with pytest.raises(SaveError, match=words):
        dpb.load(tmp_path / "old.json")


def test_a_models_fields_are_those_of_its_policy_and_no_others(tmp_path):
    record = dpb.make("linucb", dim=2, seed=0).model().to_record()
    for change, words in (
        ({"gamma": 1.0}, "'gamma' that is not known"),
        ({"one_hot": 1}, "one_hot is no flag"),
        ({"dim": 3}, "theta has not dim numbers"),
    ):
        (tmp_path / "model.json").write_text(json.dumps({**record, **change}))
        with pytest.raises(SaveError, match=words):
            dpb.load(tmp_path / "model.json")


def test_a_model_is_read_without_scipy_opendp_or_the_core(tmp_path):
    """A ranker loads nothing that it does not use."""
    dpb.make("anytime", dim=2, epsilon=1.0, delta=1e-5, seed=0).export(tmp_path / "model.json")
    code = (
        "import json, sys; from dpbandit.model import ReleasedModel\n"
        f"model = ReleasedModel.from_record(json.load(open({str(tmp_path / 'model.json')!r})))\n"
        "assert model.select([[1.0, 0.0], [0.0, 0.5]]) in (0, 1)\n"
        "print([name for name in ('scipy', 'opendp', 'dpbandit._core') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.strip() == "[]"
