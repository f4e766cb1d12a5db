"""What encoding adds to a decision: `slate.contexts(person)` and `select`, against `select` alone.

python benchmarks/encoding.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import dpbandit as dpb

CALLS, REPEATS, ARMS = 100, 200, 10


def microseconds(call: Callable[[], Any]) -> float:
    """The least of many short means, in processor time: other work beside it counts for little."""
    least = float("inf")
    for _ in range(REPEATS):
        start = time.thread_time()
        for _ in range(CALLS):
            call()
        least = min(least, time.thread_time() - start)
    return 1e6 * least / CALLS


def main() -> None:
    encoder = dpb.Encoder(
        {
            "age": dpb.Number(0, 100),
            "country": dpb.Category(["de", "fr", "uk"]),
            "device": dpb.Category(["phone", "desk"]),
            "article": dpb.Hashed(16),
        },
        crosses=[("country", "article"), ("device", "article")],
        item=["article"],
    )
    bandit = dpb.make(
        "anytime", encoder=encoder, epsilon=1.0, delta=1e-6, reward_range=(0, 1), seed=0
    )
    slate = encoder.slate([{"article": f"article {i}"} for i in range(ARMS)])
    person = {"age": 31, "country": "fr", "device": "phone"}
    ready = slate.contexts(person)
    without = microseconds(lambda: bandit.select(ready))
    with_it = microseconds(lambda: bandit.select(slate.contexts(person)))
    print(
        f"{ARMS} arms, {encoder.dim} columns: select {without:.1f} µs, with encoding {with_it:.1f}"
    )
    print(f"encoding adds {with_it - without:.1f} µs")


if __name__ == "__main__":
    main()
