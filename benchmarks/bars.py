"""The bars that the engine and what is around it are held to, for what `engine_floor.py` found."""

from __future__ import annotations

from typing import Any

from from_python import BY_HAND

SLOWER = ["private-ts", "joint"]
# Times the floor; times linucb, and the same for those that factor a matrix in every round; times
# NumPy by hand; workers and the speed-up they should bring; seconds.
FLOOR_BAR, PRIVATE_BAR, SLOWER_BAR = 1.15, 2.0, 4.0
CALL_BARS = {"dpbandit linucb": 0.07, "dpbandit anytime": 0.17}
WORKER_BARS = {"2": 1.9, "16": 13.0}
COLD_BARS = {"linucb, import to first round": 0.5, "the README's example, whole process": 1.5}


def bars(found: dict[str, Any]) -> list[tuple[str, float, float, bool]]:
    """What we hold ourselves to: words, what was measured, the bar, and whether more is better."""
    lines: list[tuple[str, float, float, bool]] = []
    for label, took in found["microseconds a round"].items():
        if "floor" in took:
            lines.append(
                (f"{label}: linucb × floor", took["linucb"] / took["floor"], FLOOR_BAR, False)
            )
        for name in sorted(set(took) - {"floor", "linucb"}):
            bar = SLOWER_BAR if name in SLOWER else PRIVATE_BAR
            lines.append((f"{label}: {name} × linucb", took[name] / took["linucb"], bar, False))
    for name, took in found["workers"].items():
        for count, bar in WORKER_BARS.items():
            if f"speed-up on {count}" in took:
                words = f"dpb.run, {name}: speed-up on {count}"
                lines.append((words, took[f"speed-up on {count}"], bar, True))
    for name, bar in CALL_BARS.items():
        took = found["calls"]["W1"]
        words = f"W1 from Python: {name} × {BY_HAND}"
        lines.append((words, took[name] / took[BY_HAND], bar, False))
    took = found["500 features"]
    peers = [took[name] for name in took if not name.startswith(("dpbandit", BY_HAND))]
    if peers:
        words = "d = 500: anytime × the fastest peer here"
        lines.append((words, took["dpbandit anytime"] / min(peers), 1.0, False))
    lines += [(f"{name}, s", found["cold"][name], bar, False) for name, bar in COLD_BARS.items()]
    return lines
