"""What one decision costs from Python: select and update, with all checks and accounting, beside other libraries.

    python benchmarks/decisions.py                       # a table; some minutes
    python benchmarks/decisions.py --json decisions.json --repeats 9 --cpu

The task is W1 of ../shared/bench: 10 features, 10 of 1,000 arms offered a round as a NumPy array, one reward learned. All of
it runs in one process, taking turns, and each line is the best of its turns. Peers that are not installed are left out
(extra `bench`). `--cpu` counts this process's own time, for machines that others use too.

What differs between the tasks: contextualbandits fits the same ridge regression and bound (in single precision unless told
otherwise: told) and checks little; MABWiser's LinUCB has a model per arm, so one arm stands for all; river is given
dictionaries and asked for a distribution per arm; Vowpal Wabbit learns by gradient steps from lines of text that were
written beforehand. None of them accounts for privacy.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import dpbandit as dpb

DIM, POOL, SHOWN = 10, 1_000, 10
OPTIONS = {"dim": DIM, "epsilon": 2.0, "delta": 1e-6, "reward_range": (-1.5, 1.5)}
OURS_ROUNDS, PEER_ROUNDS, NOISE_ROUNDS = 100_000, 1_000, 200

# Without a seed: real noise. `noise` where the default has no exact sampler.
NOISY: dict[str, dict[str, Any]] = {
    "tree-gauss": {},
    "toeplitz": {},
    "private-linucb": {},
    "private-ts": {},
    "dgs": {"noise": "gaussian"},
    "local": {},
    "adac-oful": {},
    "joint": {},
}

Play = Callable[[], float]


class Stream:
    """Slates of contexts and the rewards of all arms, prepared before anything is timed."""

    def __init__(self, rounds: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        pool = rng.normal(size=(POOL, DIM))
        pool /= np.linalg.norm(pool, axis=1, keepdims=True)
        theta = rng.normal(size=DIM)
        theta /= np.linalg.norm(theta)
        slates = pool[rng.integers(0, POOL, size=(rounds, SHOWN))]
        self.slates = list(slates)
        self.rewards = (slates @ theta + 0.1 * rng.normal(size=(rounds, SHOWN))).tolist()


def ours(name: str, stream: Stream, clock: Callable[[], float], **given: Any) -> Play:
    """A new bandit every time: W1 from its first round."""

    def play() -> float:
        bandit = dpb.make(name, **OPTIONS, **given)
        slates, rewards = stream.slates, stream.rewards
        began = clock()
        for slate, paid in zip(slates, rewards, strict=True):
            arm = bandit.select(slate)
            bandit.update(slate[arm], paid[arm])
        return (clock() - began) / len(slates)

    return play


def contextualbandits(stream: Stream, clock: Callable[[], float]) -> Play:
    from contextualbandits.linreg import LinearRegression

    model = LinearRegression(lambda_=1.0, fit_intercept=False, use_float=False)
    model.fit(stream.slates[0], np.array(stream.rewards[0]))

    def play() -> float:
        began = clock()
        for slate, paid in zip(stream.slates, stream.rewards, strict=True):
            arm = int(np.argmax(model.predict_ucb(slate, alpha=0.3)))
            model.partial_fit(slate[arm : arm + 1], np.array([paid[arm]]))
        return (clock() - began) / len(stream.slates)

    return play


def vowpal_wabbit(stream: Stream, clock: Callable[[], float]) -> Play:
    import vowpalwabbit

    model = vowpalwabbit.Workspace("--cb_explore_adf --regcbopt --mellowness 0.01 --quiet")
    texts = [["|f " + " ".join(f"{i}:{v:.6f}" for i, v in enumerate(row)) for row in slate] for slate in stream.slates]

    def play() -> float:
        began = clock()
        for lines, paid in zip(texts, stream.rewards, strict=True):
            chances = model.predict(lines)
            arm = int(np.argmax(chances))
            seen = lines.copy()
            seen[arm] = f"0:{-paid[arm]:.6f}:{chances[arm]:.6f} {lines[arm]}"
            model.learn(seen)
        return (clock() - began) / len(texts)

    return play


def mabwiser(stream: Stream, clock: Callable[[], float]) -> Play:
    from mabwiser.mab import MAB, LearningPolicy

    model = MAB(arms=[0], learning_policy=LearningPolicy.LinUCB(alpha=0.3, l2_lambda=1.0))
    model.fit([0] * SHOWN, stream.rewards[0], stream.slates[0])

    def play() -> float:
        began = clock()
        for slate, paid in zip(stream.slates, stream.rewards, strict=True):
            scores = model.predict_expectations(slate)
            arm = max(range(SHOWN), key=lambda j: scores[j][0])
            model.partial_fit([0], [paid[arm]], slate[arm : arm + 1])
        return (clock() - began) / len(stream.slates)

    return play


def river(stream: Stream, clock: Callable[[], float]) -> Play:
    from river.linear_model import BayesianLinearRegression

    model = BayesianLinearRegression()
    slates = [[dict(enumerate(row.tolist())) for row in slate] for slate in stream.slates]
    model.learn_one(slates[0][0], stream.rewards[0][0])

    def play() -> float:
        began = clock()
        for slate, paid in zip(slates, stream.rewards, strict=True):
            seen = [model.predict_one(x, with_dist=True) for x in slate]
            arm = max(range(SHOWN), key=lambda j: seen[j].mu + 0.3 * seen[j].sigma)
            model.learn_one(slate[arm], paid[arm])
        return (clock() - began) / len(slates)

    return play


PEERS = {
    "contextualbandits": contextualbandits,
    "Vowpal Wabbit": vowpal_wabbit,
    "MABWiser": mabwiser,
    "river": river,
}


def players(clock: Callable[[], float], rounds: int) -> Iterator[tuple[str, Play]]:
    long, short, few = Stream(rounds), Stream(min(rounds, PEER_ROUNDS)), Stream(min(rounds, NOISE_ROUNDS))
    yield "linucb", ours("linucb", long, clock)
    yield "anytime, real noise", ours("anytime", long, clock)
    for name, prepare in PEERS.items():
        try:
            yield name, prepare(short, clock)
        except ImportError as error:
            print(f"{name} is left out: {error}")
    horizon = len(few.slates)
    for name, given in NOISY.items():
        yield f"{name}, simulation", ours(name, few, clock, **given, horizon=horizon, seed=0)
        yield f"{name}, real noise", ours(name, few, clock, **given, horizon=horizon)


def measure(repeats: int, rounds: int, cpu: bool) -> dict[str, float]:
    """Microseconds a round, the best of all turns; the first turn compiles and does not count."""
    playing = dict(players(time.process_time if cpu else time.perf_counter, rounds))
    best = dict.fromkeys(playing, np.inf)
    for turn in range(repeats + 1):
        for name, play in playing.items():
            took = play() * 1e6
            if turn > 0:
                best[name] = min(best[name], took)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=OURS_ROUNDS, help="of linucb and anytime; others play fewer")
    parser.add_argument("--cpu", action="store_true", help="this process's own time instead of the clock on the wall")
    parser.add_argument("--json", help="also write the numbers to this file")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    best = measure(given.repeats, given.rounds, given.cpu)
    print(f"\nmicroseconds a round ({'own time' if given.cpu else 'wall'}), W1, best of {given.repeats}\n")
    for name, took in best.items():
        if ", simulation" not in name and name.split(",")[0] not in NOISY:
            print(f"{name:28s} {took:9.2f}   {took / best['linucb']:7.1f} × linucb")
    print("\nwhat real noise costs a round of the others\n")
    for name in NOISY:
        simulated, real = best[f"{name}, simulation"], best[f"{name}, real noise"]
        print(f"{name:28s} {real:9.1f}   of which noise {real - simulated:7.1f}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"unit": "microseconds a round", "cpu": given.cpu, "best": best}, file, indent=1)


if __name__ == "__main__":
    main()
