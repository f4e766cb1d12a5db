"""Fit the decays of `dpbandit.release.toeplitz` and write its table. Run by hand: python tools/fit_toeplitz.py

An entry is fitted to the horizons it will serve, from the end of the entry before it to its own. At each of them the
worst and the root-mean-square error over time are divided by those of the exact square root, and a smooth maximum of
the logarithms is made small (the square root is not optimal: some ratios come out below 1). Every loss is a closed form
in rates and weights; gradients are differences; starts are seeded, so the table can be made again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpbandit.release import toeplitz

Vector = NDArray[np.float64]

# Buffers per entry: the fewest that keep every ratio below 1.002. One less in the last entry gives 1.003, two 1.007.
BUFFERS = {10**3: 4, 10**4: 5, 10**5: 6, 10**6: 7}
STARTS = 5
SHARPNESS = 300.0  # high enough for the largest ratios to rule, low enough for a smooth descent
POINTS = 30
DIGITS = 10
DESTINATION = Path(__file__).parent.parent / "src" / "dpbandit" / "release" / "toeplitz_table.py"


def horizons_of(entry: int, points: int) -> NDArray[np.int64]:
    """The horizons that an entry serves, evenly on the log scale. Horizon 1 is left out: every C is exact there."""
    before = max((length for length in BUFFERS if length < entry), default=2)
    return np.unique(np.rint(np.geomspace(before, entry, points)).astype(np.int64))


def square_root_errors(horizons: NDArray[np.int64]) -> tuple[Vector, Vector]:
    """Worst and root-mean-square error of the exact square root at each horizon, sensitivity included, ρ = ½."""
    k = np.arange(1, horizons.max())
    c = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    squares = np.cumsum(c**2)
    means = np.cumsum(squares)[horizons - 1] / horizons
    column = squares[horizons - 1]
    return column, np.sqrt(column * means)


def errors(rates: Vector, weights: Vector, horizons: NDArray[np.int64]) -> tuple[Vector, Vector]:
    """The same two errors of a sum of decays."""
    n = horizons.astype(np.float64)
    column = toeplitz.squared_column(rates, weights, n)
    poles, residues = toeplitz.inverse_decays(rates, weights)
    rows = toeplitz.squared_row(rates, weights, n)
    summed = np.zeros_like(n)
    for i in range(len(poles)):
        for j in range(i + 1):
            pair = residues[i] * residues[j] * (1 if i == j else 2)
            summed += pair * summed_geometric(poles[i] + poles[j] - poles[i] * poles[j], n)
    return np.sqrt(column * rows), np.sqrt(column * summed / n)


def summed_geometric(rate: float, n: Vector) -> Vector:
    """Σ_{t=1}^{n} Σ_{k<t} (1 − rate)^k, by its expansion where the closed form cancels."""
    slow = n * (n + 1) / 2 * (1 - rate * (n - 1) / 3)
    if rate == 0.0:
        return slow
    return np.where(n * rate < 1e-5, slow, (n - (1 - rate) * toeplitz.geometric(rate, n)) / rate)


def unpack(x: Vector) -> tuple[Vector, Vector]:
    """Rates in (0, 1) and positive weights, from numbers without bounds."""
    m = len(x) // 2
    return 1 / (1 + np.exp(-x[:m])), np.exp(x[m:])


def pack(rates: Vector, weights: Vector) -> Vector:
    """The inverse of `unpack`."""
    return np.concatenate([np.log(rates / (1 - rates)), np.log(weights)])


def objective(entry: int, points: int = POINTS) -> Callable[[Vector], float]:
    """The loss of an entry as a function of the packed numbers."""
    horizons = horizons_of(entry, points)
    target = np.log(np.concatenate(square_root_errors(horizons)))

    def loss(x: Vector) -> float:
        rates, weights = unpack(x)
        if np.diff(np.sort(np.log(rates))).min() < 1e-3:
            return 10.0  # two decays have merged
        logs = np.log(np.concatenate(errors(rates, weights, horizons))) - target
        if not np.isfinite(logs).all():
            return 10.0
        largest = logs.max()
        return float(largest + np.log(np.mean(np.exp(SHARPNESS * (logs - largest)))) / SHARPNESS)

    return loss


def start(entry: int, rng: np.random.Generator, jitter: float) -> Vector:
    """Decays evenly spread over the time scales, weighted as a Riemann sum of the square root's c_k = ∫θ^k dθ/(π√(θ(1−θ)))."""
    m = BUFFERS[entry]
    fastest, slowest = rng.uniform(0.5, 0.9), rng.uniform(0.3, 3.0) / entry
    rates = np.minimum(
        np.geomspace(fastest, slowest, m) * np.exp(jitter * rng.normal(size=m)), 0.95
    )
    weights = np.sqrt(rates) * (1 - rates) * np.log(fastest / slowest) / (m - 1) / np.pi
    return pack(rates, weights)


def fit(entry: int) -> tuple[Vector, Vector]:
    """The best of several descents, fastest decay first."""
    rng, loss, began = np.random.default_rng(entry), objective(entry), time.perf_counter()
    found = []
    for number in range(STARTS):
        x = start(entry, rng, jitter=0.0 if number == 0 else 0.3)
        result = minimize(loss, x, method="BFGS", options={"maxiter": 500, "gtol": 1e-7})
        found.append((float(result.fun), result.x))
        print(
            f"{entry:>8}: start {number}, loss {result.fun:+.7f}, {time.perf_counter() - began:.0f} s",
            flush=True,
        )
    rates, weights = unpack(min(found, key=lambda pair: pair[0])[1])
    order = np.argsort(-rates)
    return _rounded(rates[order]), _rounded(weights[order])


def _rounded(values: Vector) -> Vector:
    return np.array([float(f"{value:.{DIGITS}g}") for value in values])


def report(entry: int, rates: Vector, weights: Vector) -> str:
    """The largest ratios over a dense grid of the horizons this entry serves."""
    horizons = horizons_of(entry, 400)
    ours, exact = errors(rates, weights, horizons), square_root_errors(horizons)
    worst, rms = ((a / b).max() for a, b in zip(ours, exact, strict=True))
    return f"largest ratio to the square root: worst {worst:.4f}, root-mean-square {rms:.4f}"


def write(table: dict[int, tuple[Vector, Vector]]) -> str:
    """The module's text."""
    lines = [
        '"""Rates 1 − θ and weights ω of the decays in `toeplitz`, by horizon. Written by `tools/fit_toeplitz.py`."""',
        "",
        "TABLE: dict[int, tuple[tuple[float, ...], tuple[float, ...]]] = {",
    ]
    for entry, (rates, weights) in table.items():
        lines += [f"    # {report(entry, rates, weights)}", f"    {entry:_}: ("]
        for values in (rates, weights):
            lines += [f"        ({', '.join(repr(float(value)) for value in values)}),"]
        lines += ["    ),"]
    return "\n".join([*lines, "}", ""])


def main() -> None:
    table = {}
    for entry in BUFFERS:
        table[entry] = fit(entry)
        print(f"{entry:>8}: {report(entry, *table[entry])}", flush=True)
    if "--dry" in sys.argv:
        print(write(table))
    else:
        DESTINATION.write_text(write(table))
        print(f"wrote {DESTINATION}; format it with ruff")


if __name__ == "__main__":
    main()
