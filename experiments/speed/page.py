"""The figures as a table, a drawing and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.speed.contestants import CONTESTANTS

START, END = "<!-- bench speed: begin -->", "<!-- bench speed: end -->"


def markdown(result: dict[str, Any]) -> str:
    """What goes between the marks of docs/benchmarks.md."""
    names = [task["name"] for task in result["tasks"]]
    head = "| | " + " | ".join(f"{n}: µs a round | × linucb" for n in names) + " | what differs |"
    lines = [head, "|---|" + "---|" * (2 * len(names) + 1)]
    differs = {one.name: one.differs for one in CONTESTANTS}
    for row in result["decisions"]:
        cells = [f"{_short(row.get(n))} | {_short(row.get(f'{n} ratio'))}" for n in names]
        name = (
            f"**{row['contestant']}**" if row["ours"] else f"{row['contestant']} {row['version']}"
        )
        lines.append(f"| {name} | {' | '.join(cells)} | {differs.get(row['contestant'], '')} |")
    machine = result["machine"]
    where = (
        f"{machine['processor']}, {machine['cores']} cores (one used), Python {machine['python']}"
    )
    tasks = "; ".join(f"{task['name']}: {task['words']}" for task in result["tasks"])
    missing = result["missing"]
    lines += ["", f"{tasks}. {where}. Best of {result['repeats']} interleaved turns."]
    if missing:
        lines.append(f"Not installed, so not here: {', '.join(missing)}.")
    if result.get("engine"):
        lines += [
            "",
            "| whole runs (`dpb.run`, one core) | µs a round | × linucb |",
            "|---|---|---|",
        ]
        base = result["engine"].get("linucb")
        for name, taken in sorted(result["engine"].items(), key=lambda pair: pair[1]):
            lines.append(f"| `{name}` | {_short(taken)} | {_short(taken / base) if base else ''} |")
    if result.get("noise"):
        lines += [
            "",
            "| W1, a round with | a seed: µs | real noise: µs | releases |",
            "|---|---|---|---|",
        ]
        for name, cost in sorted(result["noise"].items(), key=lambda pair: pair[1]["real"]):
            often = f"{cost['releases']:,.0f} in {cost['rounds']:,.0f} rounds"
            lines.append(
                f"| `{name}` | {_short(cost['seeded'])} | {_short(cost['real'])} | {often} |"
            )
        lines.append(
            "\n`select` and `update` from Python, the same loop twice. A release draws ten "
            "numbers, for `local` one, for "
            "`anytime` eleven, for `joint` 66."
        )
    return "\n".join(lines)


def _short(number: float | None) -> str:
    if number is None:
        return ""
    return (
        f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"
    )


def put_into(page: Path, text: str) -> None:
    """Replace what is between the marks; add both at the end if there are none."""
    before = page.read_text() if page.exists() else "# Speed\n\n"
    if START not in before:
        before = f"{before.rstrip()}\n\n{START}\n{END}\n"
    head, rest = before.split(START, 1)
    tail = rest.split(END, 1)[1]
    page.write_text(f"{head}{START}\n{text}\n{END}{tail}")


def draw(result: dict[str, Any], path: Path) -> None:
    """Growth with features and with arms, on logarithmic axes."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, panes = plt.subplots(1, 2, figsize=(9.5, 3.8), constrained_layout=True)
    for pane, axis, words in zip(
        panes, ("features", "arms"), ("features (25 arms)", "arms (10 features)"), strict=True
    ):
        curves: dict[str, list[tuple[int, float]]] = {}
        for point in result["growth"]:
            if point["axis"] == axis:
                curves.setdefault(point["contestant"], []).append(
                    (point["at"], point["microseconds"])
                )
        for name, points in curves.items():
            ours = name.startswith("dpbandit")
            xs, ys = zip(*sorted(points), strict=True)
            pane.plot(
                xs,
                ys,
                marker="o",
                ms=4,
                lw=2.2 if ours else 1.2,
                label=name,
                alpha=1.0 if ours else 0.75,
                ls="-" if ours else "--",
            )
        pane.set(xscale="log", yscale="log", xlabel=words, ylabel="µs a round (select + update)")
        pane.grid(alpha=0.25, which="both", lw=0.4)
        pane.spines[["top", "right"]].set_visible(False)
    panes[1].legend(fontsize=7.5, frameon=False)
    figure.savefig(path, dpi=160)
    plt.close(figure)
