"""What clipping does to money: the noise it speaks of is a bandit's, and its numbers are the sample's."""

import json

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.errors import NotFiniteError, OptionError, ShapeError

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(scope="module")
def money():
    rng = np.random.default_rng(0)
    return np.where(rng.random(20_000) < 0.1, rng.lognormal(2.5, 1.2, size=20_000), 0.0)


@pytest.mark.parametrize("algorithm", ["toeplitz", "tree-gauss", "local"])
def test_noise_is_what_the_bandit_adds_to_an_arms_mean(algorithm):
    rounds, wide = 256, 8.0
    budget = {"epsilon": 4.0, "delta": 1e-6, "horizon": rounds, "reward_range": (0.0, wide)}
    sums = []
    for seed in range(60):
        bandit = dpb.make(algorithm, dim=1, seed=seed, ridge=1e-6, **budget)
        for _ in range(rounds):
            bandit.update([1.0], wide / 2)
        sums.append(bandit.theta[0])
    said = dpb.clipping([0.0, wide], algorithm=algorithm, **budget).asked.noise
    assert 0.72 < np.std(sums, ddof=1) / said < 1.35


def test_shares_and_means_are_the_samples(money):
    found = dpb.clipping(money, reward_range=(1.0, 50.0), **BUDGET)
    one = found.asked
    assert one.below == np.mean(money < 1.0)
    assert one.above == np.mean(money > 50.0)
    assert one.bias == pytest.approx(np.clip(money, 1, 50).mean() - money.mean())
    assert one.spread == pytest.approx(np.clip(money, 1, 50).std() / 100)
    assert one.error**2 == pytest.approx(one.bias**2 + one.spread**2 + one.noise**2)
    assert found.recommended.error == min(one.error for one in found.ranges)
    widest = found.ranges[0]
    assert (widest.low, widest.above) == (0.0, 0.0)
    assert widest.bias == 0.0


@pytest.mark.parametrize(("algorithm", "power"), [("toeplitz", 1), ("local", 2)])
def test_rounds_grow_with_the_width_as_said(money, algorithm, power):
    found = {
        top: dpb.clipping(money, reward_range=(0, top), algorithm=algorithm, **BUDGET).asked
        for top in (10.0, 100.0)
    }
    assert found[100.0].noise == pytest.approx(10 * found[10.0].noise)
    assert found[100.0].rounds == pytest.approx(10**power * found[10.0].rounds)


def test_less_noise_leaves_room_for_a_wider_range(money):
    tops = [dpb.clipping(money, epsilon=e, delta=1e-6).recommended.high for e in (0.1, 1.0, 30.0)]
    assert tops[0] < tops[1] < tops[2]


def test_clipping_that_changes_which_arm_is_best_is_said():
    rare = np.zeros(2_000)
    rare[::500] = 3_000.0  # 6 on average, from four rewards
    often = np.tile([0.0, 10.0], 1_000)  # 5
    arm = ["rare"] * 2_000 + ["often"] * 2_000
    found = dpb.clipping(
        np.concatenate([rare, often]), arm=arm, reward_range=(0, 10), horizon=1_000, **BUDGET
    )
    assert (found.arms, found.difference) == (2, 1.0)
    assert found.order == ("rare", "often")
    assert found.asked.order == ("often", "rare")
    assert found.asked.arm_biases == pytest.approx({"often": 0.0, "rare": 0.02 - 6.0})
    assert found.asked.moved == pytest.approx(5.98 / 2)  # of what they differ by
    assert "changes the best arm: often instead of rare" in found.headline()


def test_what_shifts_all_arms_alike_costs_nothing():
    arm = np.repeat(["a", "b"], 100)
    rewards = np.where(np.arange(200) % 100 < 50, 1_000.0, 1.0) + (arm == "b")
    found = dpb.clipping(rewards, arm=arm, reward_range=(0.0, 900.0), **BUDGET).asked
    assert found.bias < -50
    assert found.moved == pytest.approx(0.25)  # b's large rewards lose 1 more, half of the time


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"rewards": [[1.0, 2.0]]}, ShapeError, "shape"),
        ({"rewards": ["much", "more"]}, ShapeError, "numbers"),
        ({"rewards": [1.0, np.nan]}, NotFiniteError, "finite"),
        ({"rewards": [2.0, 2.0]}, OptionError, "nothing to clip"),
        ({"arm": ["a"]}, ShapeError, "one arm for each of 3"),
        ({"arm": ["a", "b", "c"], "arms": 2}, OptionError, "arms must be"),
        ({"reward_range": (3, 1)}, OptionError, "low < high"),
        ({"algorithm": "anytime"}, OptionError, "noise of toeplitz"),
        ({"unit": ("person", 1)}, OptionError, "no narrower one wins"),
        ({"epsilon": np.inf}, OptionError, "must be finite"),
        ({"difference": 0}, OptionError, "difference must be"),
        ({"rewards": [-1.0, 0.0, 1.0]}, OptionError, "give difference"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, error, words):
    with pytest.raises(error, match=words):
        dpb.clipping(**{"rewards": [0.0, 1.0, 9.0], **BUDGET, **changes})


# ------------------------------------------------------------------------------ the command line


def test_the_command_line_says_and_shows_it(dpbandit_, tmp_path, money):
    file, picture = tmp_path / "invented.csv", tmp_path / "clipping.png"
    arms = np.where(np.arange(len(money)) % 2, "left", "right")
    file.write_text(
        "arm,reward\n" + "".join(f"{a},{r}\n" for a, r in zip(arms, money, strict=True))
    )
    asked = ["--rewards-sample", str(file), "--delta", "1e-6", "--epsilon", "1"]
    ran = dpbandit_("plan", *asked, "--reward-range", "0", "1000", "--out", str(picture))
    assert ran.status == 0, ran.err
    mine = dpb.clipping(money, arm=arms, reward_range=(0, 1000), **BUDGET)
    assert mine.headline() in ran.out
    assert "must be public or invented" in ran.out
    assert "proven at ε = 1, δ = 1e-06 for one reward" in ran.out
    assert picture.stat().st_size > 1_000
    ran = dpbandit_("plan", *asked, "--json")
    record = json.loads(ran.out)
    assert record["recommended"]["high"] == mine.recommended.high
    assert record["setting"]["status"] == "proven"
    assert record["asked"] is None


def test_with_algorithms_named_the_command_line_plans_for_them(dpbandit_, tmp_path):
    file = tmp_path / "invented.csv"
    file.write_text("arm,reward\n" + "a,0\na,9\nb,3\nb,1\n" * 50)
    asked = ["local", "--dim", "2", "--arms", "2", "--horizon", "100", "--json"]
    ran = dpbandit_("plan", "--rewards-sample", str(file), *asked)
    assert ran.status == 0, ran.err
    record = json.loads(ran.out)
    best = record["clipping"]["recommended"]
    assert record["setting"]["reward_range"] == [best["low"], best["high"]]
    assert "local" in record["algorithms"]


@pytest.mark.parametrize(
    ("text", "more", "words"),
    [
        (None, [], "cannot be read"),
        ("", [], "is not a table"),
        ("1,2\n3,4\n", [], "a column reward"),
        ("1\n2\n", ["--click-rate", "0.1"], "recommends a range"),
        ("1\n2\n", ["anytime", "--click-rate", "0.1"], "leave rewards_sample out"),
    ],
)
def test_mistakes_are_one_line(dpbandit_, tmp_path, text, more, words):
    file = tmp_path / "sample.csv"
    if text is not None:
        file.write_text(text)
    ran = dpbandit_("plan", "--rewards-sample", str(file), *more)
    assert ran.status == 2
    assert words in " ".join(ran.err.split())
    assert "Traceback" not in ran.err
