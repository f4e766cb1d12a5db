"""What an engine of the core holds: it can be kept, copied, loaded, forgotten, and does not grow."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))

from rounds import DIM, WORLDS, algorithms, arms, joint, ridge, variants

from dpbandit.reference.engine import Engine as Reference

core = pytest.importorskip("dpbandit._core", reason="there is no compiled core here")

ROUNDS = 300
WORLD = WORLDS["one-hot"](2 * ROUNDS)
SPECS = {**algorithms(2 * ROUNDS, WORLD), **variants(2 * ROUNDS, WORLD)}


def drive(engine: Any, start: int, count: int) -> bytes:
    """Some rounds, one by one; what was seen of them."""
    seen = b""
    for t in range(start, start + count):
        slate = np.ascontiguousarray(WORLD.pool[WORLD.shown[t]])
        arm = engine.select(slate)
        engine.simulate(slate[arm], float(WORLD.rewards[t, arm]), True, 5, 6)
        seen += bytes([arm]) + engine.theta().tobytes()
    return seen


def held(engine: Any) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in engine.fields().items()}


@pytest.mark.parametrize("name", SPECS)
def test_snapshots_copies_and_fields_go_on_bit_for_bit(name: str) -> None:
    engine = core.Engine(SPECS[name])
    drive(engine, 0, 77)
    kept, copy = engine.snapshot(), engine.copy()
    fields = {key: array.copy() for key, array in engine.fields().items()}
    loaded = core.Engine(SPECS[name])
    loaded.load_fields(fields)
    assert held(loaded) == held(engine) == held(copy)
    seen, end = drive(engine, 77, 120), held(engine)
    assert drive(copy, 77, 120) == seen, "the copy went another way"
    assert drive(loaded, 77, 120) == seen, "what was loaded went another way"
    assert held(copy) == end
    assert held(loaded) == end
    engine.restore(kept)
    assert drive(engine, 77, 120) == seen, "what was restored went another way"
    assert held(engine) == end


@pytest.mark.parametrize("name", SPECS)
def test_a_reset_engine_is_a_new_one(name: str) -> None:
    engine, new = core.Engine(SPECS[name]), core.Engine(SPECS[name])
    drive(engine, 0, 90)
    engine.reset()
    assert engine.snapshot() == new.snapshot()
    assert drive(engine, 0, 60) == drive(new, 0, 60)


def test_a_copy_and_a_snapshot_share_nothing_with_their_engine() -> None:
    engine = core.Engine(SPECS["tree-gauss"])
    copy, kept, before = engine.copy(), engine.snapshot(), held(engine)
    drive(engine, 0, 20)
    assert held(copy) == before
    assert copy.snapshot() == kept
    views = engine.fields()
    del engine  # views keep what they look at
    assert np.isfinite(views["theta"]).all()


def test_fields_of_another_engine_are_refused_by_name() -> None:
    engine = core.Engine(SPECS["tree-gauss"])
    drive(engine, 0, 9)
    fields, before = {k: v.copy() for k, v in engine.fields().items()}, held(engine)
    for change, words in (
        ({"colour": np.zeros(1)}, "colour is not a field"),
        ({"carry": np.zeros(DIM + 1)}, "carry has another shape"),
        ({"sums_low": fields["sums_low"].astype(np.float64)}, "sums_low has another shape or type"),
    ):
        with pytest.raises(ValueError, match=words):
            engine.load_fields({**fields, **change})
    with pytest.raises(ValueError, match="carry is missing"):
        engine.load_fields({name: array for name, array in fields.items() if name != "carry"})
    with pytest.raises(ValueError, match="another engine"):
        engine.restore(core.Engine(SPECS["joint"]).snapshot())
    assert held(engine) == before


@pytest.mark.parametrize("name", ["random", "linucb", "anytime", "joint", "private-ucb"])
def test_a_spec_is_read_to_the_last_key_and_refused_by_name(name: str) -> None:
    spec = SPECS[name]
    for key in spec:
        with pytest.raises(ValueError, match=rf"lacks {key}$"):
            core.Engine({other: value for other, value in spec.items() if other != key})
    with pytest.raises(ValueError, match="no choice 'colour'"):
        core.Engine({**spec, "colour": 1})
    for key in (
        "learner",
        "policy",
        "noise",
        *(k for k in ("site", "release", "form") if k in spec),
    ):
        with pytest.raises(ValueError, match=f"no {key} 'colour'"):
            core.Engine({**spec, key: "colour"})
        with pytest.raises(ValueError, match=f"{key} is of another type"):
            core.Engine({**spec, key: 3})
    with pytest.raises(ValueError, match="dim"):
        core.Engine({**spec, "dim": 0})


@pytest.mark.parametrize(
    ("site", "release"),
    [
        ("nothing", "tree"),
        ("reward", "tree"),
        ("moments", "once"),
        ("own", "toeplitz"),
        ("increment", "honaker"),
    ],
)
def test_a_site_and_a_release_that_do_not_go_together_are_refused(site: str, release: str) -> None:
    with pytest.raises(ValueError, match="do not go together"):
        core.Engine(ridge(ROUNDS, site=site, release=release))


# ------------------------------------------------------------------ where 64 bits end


def words(values: list[list[int]]) -> dict[str, np.ndarray]:
    """Whole numbers as the fields hold them: the low 64 bits and the high ones."""
    low = [[(v & (2**64 - 1)) - (2**64 if v >> 63 & 1 else 0) for v in row] for row in values]
    high = [[v >> 64 for v in row] for row in values]
    return {"sums_low": np.array(low, dtype=np.int64), "sums_high": np.array(high, dtype=np.int64)}


def numbers(fields: dict[str, np.ndarray]) -> list[list[int]]:
    pairs = zip(fields["sums_high"].tolist(), fields["sums_low"].tolist(), strict=True)
    return [[(high << 64) + low % 2**64 for high, low in zip(*rows, strict=True)] for rows in pairs]


def kept_below(level: int, rows: int, columns: int, sign: int) -> list[list[int]]:
    """Level l holds 2^l items of ½, less something that tells all numbers apart."""
    return [
        [sign * ((1 << (39 + row)) - 7 * row - i) if row < level else 0 for i in range(columns)]
        for row in range(rows)
    ]


def filled(spec: dict[str, Any], **given: Any) -> Any:
    """An engine with these fields."""
    engine = core.Engine(spec)
    fields = {name: array.copy() for name, array in engine.fields().items()}
    for name, value in given.items():
        fields[name][:] = value
    engine.load_fields(fields)
    return engine


LEVELS = [20, 21, 22, 23, 30, 45]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("kind", ["tree", "honaker", "joint", "own"])
def test_sums_are_exact_where_64_bits_end(kind: str, level: int, sign: int) -> None:
    """One more reward completes a node of 2^level items of the largest size."""
    t = 1 << level
    spec = {
        "tree": ridge(2 * t - 1),
        "honaker": ridge(2 * t - 1, release="honaker"),
        "joint": joint(2 * t - 1),
        "own": ridge(2 * t - 1, site="own"),
    }[kind]
    rows, columns = core.Engine(spec).fields()["sums_low"].shape
    kept = kept_below(level, rows, columns, sign)
    engine = filled(spec, rounds=t - 1, **words(kept))
    assert numbers(engine.fields()) == kept
    x = np.array([0.0, 1.0, 0.0, 0.0])
    item = {"joint": item_of_joint(spec, x, 0.75)}.get(kind, [0, 3 << 37, 0, 0])
    assert engine.prepare(x, 0.75) > 0
    sums = [sum(row[i] for row in kept) + item[i] for i in range(columns)]
    found = numbers(engine.fields())
    assert found[level] == sums
    assert found[:level] == [[0] * columns] * level
    shown = np.array([float(number) for number in sums]) * 2.0**-40
    if kind == "own":  # what it shows is A⁻¹ times the sum, whose unit is W·L = 2
        assert engine.pending_whole() is None
        assert np.allclose(engine.pending(), engine.fields()["inverse"] @ (2.0 * shown), rtol=1e-12)
        return
    # Honaker's form shows all nodes that end here, a row for each level.
    own = slice(level * columns, (level + 1) * columns) if kind == "honaker" else slice(None)
    assert engine.pending_whole()[own] == sums
    assert (engine.pending()[own] == shown).all()


def item_of_joint(spec: dict[str, Any], x: np.ndarray, reward: float) -> list[int]:
    engine = core.Engine(spec)
    engine.prepare(x, reward)
    item: list[int] = engine.pending_whole()
    return item


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_arms_are_exact_where_64_bits_end(level: int, sign: int) -> None:
    t = 1 << level
    spec = arms(2 * t - 1)
    places, rows = core.Engine(spec).fields()["sums_low"].shape
    kept = np.array(kept_below(level, rows, places, sign), dtype=object).T.tolist()
    engine = filled(spec, rounds=t - 1, pulls=t - 1, **words(kept))
    engine.prepare(np.array([0.0, 1.0, 0.0, 0.0]), 0.75)
    assert engine.pending_whole() == [sum(kept[1]) + (3 << 37)]
    found = numbers(engine.fields())
    assert found[1][level] == sum(kept[1]) + (3 << 37)
    assert found[0] == kept[0]


def test_the_anytime_sum_is_exact_beyond_64_bits() -> None:
    spec = SPECS["anytime"]
    for size in (2**62 + 12345, 2**63 - 1, 2**63 + 98765, 2**90 + 31):
        for sign in (1, -1):
            found = []
            for engine in (core.Engine(spec), Reference(spec)):
                fields = {name: array.copy() for name, array in engine.fields().items()}
                fields |= words([[sign * (size + i) for i in range(fields["sums_low"].shape[1])]])
                fields["rounds"][0], fields["due"][0] = 99, 100
                engine.load_fields(fields)
                engine.prepare(np.eye(DIM)[0], 0.0)
                found.append((engine.pending_whole(), numbers(engine.fields())))
            (shown, kept), (other_shown, other_kept) = found
            # The item itself may be rounded otherwise by one step; ρ and q are the same numbers.
            assert max(abs(a - b) for a, b in zip(shown, other_shown, strict=True)) <= 2
            assert max(abs(a - b) for a, b in zip(kept[0], other_kept[0], strict=True)) <= 2
            assert all(0 < sign * number < size + DIM + 4 for number in kept[0])


# ------------------------------------------------------------------ time and threads


@pytest.mark.parametrize("name", ["linucb", "tree-gauss", "dgs", "anytime", "joint", "private-ucb"])
def test_engines_that_play_at_once_do_what_they_do_one_after_the_other(name: str) -> None:
    def play(number: int) -> tuple[bytes, dict[str, bytes]]:
        engine, out = core.Engine(SPECS[name]), np.zeros(2 * ROUNDS, dtype=np.int64)
        engine.play(
            WORLD.pool, WORLD.shown, WORLD.rewards, WORLD.means, alphas=np.array([0.3]),
            noise_key=number, start_key=7, record=np.empty(0, dtype=np.int64), totals=np.zeros(2),
            arms=out,
        )  # fmt: skip
        return out.tobytes(), held(engine)

    alone = [play(number) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(play, range(8))) == alone
    assert name == "linucb" or len({arms for arms, _ in alone}) > 1


GROWTH = """
import resource, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from rounds import WORLDS, algorithms, ridge
from dpbandit import _core

world = WORLDS["drifting"](1000)
slates = [np.ascontiguousarray(world.pool[rows]) for rows in world.shown]
specs = algorithms(10**6, world)
specs["perturbed"] = ridge(10**6, site="nothing", release="once", context_noise=0.3)
engines = [_core.Engine(specs[name]) for name in sys.argv[2:]]

def rounds(count):
    for t in range(count):
        slate = slates[t % 1000]
        for engine in engines:
            arm = engine.select(slate)
            if engine.learn(slate[arm], 0.5):
                kept = engine.snapshot()
                engine.simulate(slate[arm], 0.5, True, 5, 6)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

sizes = [len(engine.snapshot()) for engine in engines]
small = rounds(2000)
grown = rounds(150_000) - small
assert sizes == [len(engine.snapshot()) for engine in engines]
print(grown)
"""


def test_rounds_one_by_one_leave_no_memory_behind() -> None:
    """150,000 rounds of five engines: eight bytes a round would be 6 MB."""
    folder = Path(__file__).parents[1] / "reference"
    names = ["linucb", "tree-gauss", "anytime", "perturbed", "private-ts"]
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(folder), *names],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 3_000, f"{done.stdout} KiB more"
