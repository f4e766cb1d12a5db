"""The leaderboard as a page in Markdown, and all files of a run."""

from __future__ import annotations

import json
import math
import platform
import shutil
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from dpbandit import __version__
from dpbandit.engine import core_status
from experiments.leaderboard import default, drawing, grid, summary, table
from experiments.leaderboard.runner import SECTIONS, Run
from experiments.leaderboard.store import code_version


def page(run: Run, standings: pd.DataFrame, picture: str) -> str:
    """The whole page. `picture` is where the figure is, seen from the page."""
    found = table.winners(standings)
    parts = [
        "# What privacy costs: the leaderboard",
        "<!-- Written by `dpbandit bench privacy-cost`: change the code, not this page. -->",
        "![What the default and the best proven line add to LinUCB's regret in every world, as a share of "
        f"what random play adds]({picture.replace('.png', '-small.png')})",
        f"[Every line in every world, and how regret grows with rounds]({picture}): one large picture.",
        _caption(run),
        "## How to read it",
        _prose("reading"),
        "## Who wins",
        "The best proven line of each cell: its added regret, and in brackets its whole "
        "regret as a multiple of LinUCB's. *Tied* are lines whose "
        "paired difference from the best is within one standard error." + _older(standings),
        table.winners_table(found),
        _count(found),
        "## How far the default is from the best",
        _gap(standings),
        "## What is surprising",
        "\n".join(f"- {text}" for text in surprises(standings)) or "Nothing stands out.",
        "## Lower bounds",
        _prose("bounds"),
        "## All numbers",
        "Columns: setting (ε, δ), then T. Bold: best proven. ≈: tied with it. n: seeds, "
        "where fewer than for the others (ranks allow for which seeds those were). † not "
        "proven, never ranked.",
    ]
    for place in run.shown:
        if place.name in set(standings["world"]):
            parts += [f"### {place.title}", table.world_table(standings, place.name)]
    for name, rows in run.sections.items():
        parts += [f"## {SECTIONS[name].TITLE}", SECTIONS[name].markdown(rows)]
    parts += ["## Setting", _setting(run, standings)]
    return "\n\n".join(parts) + "\n"


def _gap(standings: pd.DataFrame) -> str:
    found = default.against_best(standings)
    if not found:
        return "The default was not played at the setting and horizons of this table."
    budget = grid.SETTING
    return "\n\n".join(
        [
            "The default is `anytime`, made with the range of rewards and the public contexts and "
            'nothing else; for clicks, add `rewards="clicks"`. Its whole regret over that of '
            f"the best proven line, chosen after the fact, at {budget}; where regret is unknown, the "
            "best line's reward over its own. Bold: beyond "
            f"{default.BAR:g} × and not tied with the best. `dpbandit bench default` prints it."
            + _older(standings),
            "\n".join(f"- {words}" for words in default.sentences(found)),
            default.markdown(found),
        ]
    )


def _older(standings: pd.DataFrame) -> str:
    """What the mark means, where there is one."""
    if not standings["kept"].astype(bool).any():
        return ""
    return f" {table.KEPT}: played with [an earlier code](#setting)."


def _prose(name: str) -> str:
    return Path(__file__).with_name(f"{name}.md").read_text().strip()


def _caption(run: Run) -> str:
    return (
        "*Above: 0 is LinUCB, which is not private, 1 is random play. In the large picture a row is a "
        "world and a column a line, best on the left; bold is the best proven one, red does no better "
        "than random play, and right of the black line nothing is proven († as published, ‡ no claim). "
        "Below it, growth with T where lower bounds are known; they are worst cases, see [Lower "
        "bounds](#lower-bounds).*"
    ) + ("" if run.complete else " **This run was interrupted: cells are missing.**")


def _count(found: list[table.Winner]) -> str:
    if not found:
        return "No cell has a proven line."
    wins = Counter(w.label for w in found)
    shared = Counter(label for w in found for label in (w.label, *w.tied))
    listed = "; ".join(f"`{label}` {count}" for label, count in wins.most_common())
    ties = "; ".join(f"`{label}` {count}" for label, count in shared.most_common(4))
    return f"Cells won, of {len(found)}: {listed}. Won or tied: {ties}."


def surprises(standings: pd.DataFrame) -> list[str]:
    """Sentences about what one would not expect, each with its numbers.

    They are found by rule: cells where nothing proven beats random play, winners other than the
    usual one, published methods that lose to random play, variants that do not help, and costs that
    grow slower than the lower bound without privacy.
    """
    said: list[str] = []
    found = table.winners(standings)
    if not found:
        return said
    lost = [w for w in found if not w.beats_random]
    if lost:
        where = ", ".join(
            f"{grid.PLACES[w.world].title} at {w.budget}, T = {table.power(w.horizon)}"
            for w in lost[:6]
        )
        said.append(
            f"In {len(lost)} of {len(found)} cells no proven algorithm beats random play: "
            f"{where}{' and more' if len(lost) > 6 else ''}."
        )
    ahead = [w for w in found if w.added + w.error < 0]
    if ahead:
        best = min(ahead, key=lambda w: w.added / w.linucb)
        said.append(
            f"In {len(ahead)} of {len(found)} cells a proven private line does better than "
            f"LinUCB by more than a standard error, most in {grid.PLACES[best.world].title} "
            f"at {best.budget}, T = {table.power(best.horizon)}: `{best.label}`, "
            f"{table.number(best.added, best.error)}. LinUCB with its default "
            "bonus is a reference, not the best that can be done."
        )
    usual = Counter(w.label for w in found).most_common(1)[0][0]
    algorithm = dict(zip(standings["label"], standings["algorithm"], strict=True))
    others = [
        w
        for w in found
        if algorithm[w.label] != algorithm[usual]
        and not any(algorithm[t] == algorithm[usual] for t in w.tied)
    ]
    for label, count in Counter(w.label for w in others).most_common(4):
        cells = [w for w in others if w.label == label]
        where = ", ".join(
            f"{grid.PLACES[w.world].title} {w.budget}, T = {table.power(w.horizon)}"
            for w in cells[:3]
        )
        said.append(
            f"`{usual}` wins most cells, but `{label}` wins {count} clearly: "
            f"{where}{' and more' if count > 3 else ''}."
        )
    for name, part in standings[standings["status"] == "as-published"].groupby("label"):
        worse = int((part["added"] >= part["random"]).sum())
        if worse:
            said.append(
                f"*{name}* † does no better than random play in {worse} of {len(part)} cells."
            )
    for variant in grid.VARIANTS:
        text = _against_plain(standings, variant)
        if text:
            said.append(text)
    last = standings[standings["horizon"] == standings["horizon"].max()]
    cheap = last[
        (last["status"] == "proven")
        & (last["measure"] == "regret")
        & (last["added"] < last["linucb"])
    ]
    if len(cheap):
        row = (
            cheap.assign(share=cheap["added"] / cheap["linucb"])
            .sort_values(["epsilon", "delta", "share"])
            .iloc[0]
        )
        said.append(
            f"At T = {table.power(int(row['horizon']))} `{row['label']}` (proven) has less "
            "than twice LinUCB's regret at the setting "
            f"{grid.Budget(row['epsilon'], row['delta'])}, {grid.PLACES[row['world']].title}: "
            f"{(row['added'] + row['linucb']) / row['linucb']:.2f} ×."
        )
    return said


def _against_plain(standings: pd.DataFrame, variant: grid.Entry) -> str | None:
    """How a variant compares with its plain form at the longest horizon: before that, few learn
    anything.
    """
    last = standings[standings["horizon"] == standings["horizon"].max()]
    plain = last[last["label"] == variant.algorithm].set_index(table.CELL)["comparable"]
    varied = last[last["label"] == variant.label].set_index(table.CELL)["comparable"]
    both = pd.concat([plain, varied], axis=1, keys=["plain", "varied"]).dropna()
    both = both[(both > 0).all(axis=1)]
    if len(both) < 4:
        return None
    ratio = both["varied"] / both["plain"]
    middle, better = float(ratio.median()), int((ratio < 1).sum())
    if 0.97 < middle < 1.03:
        return (
            f"`{variant.label}` costs as much as `{variant.algorithm}`: {middle:.2f} × in the "
            f"median of {len(both)} cells at the longest horizon."
        )
    share = f"{better} of {len(both)} cells"
    return (
        f"`{variant.label}` costs {middle:.2f} × what `{variant.algorithm}` does in the median "
        f"at the longest horizon, and less in {share}."
    )


def _setting(run: Run, standings: pd.DataFrame) -> str:
    size = run.profile
    counts = "; ".join(f"T = {table.power(t)}, {n} seeds" for t, n in size.seeds.items())
    lines = [f"- Profile `{size.name}`: {counts}. Seeds count from 0."]
    few = [f"{n or 'none'} at T = {table.power(t)}" for t, n in size.slow_seeds.items()]
    who = [
        f"`{name}`" + (f" in {least} or more dimensions" if least > 1 else "")
        for name, least in grid.SLOW.items()
    ]
    lines[0] += f" Fewer for what is slow ({'; '.join(who)}): {', '.join(few)}."
    lines[0] += (
        f" Worlds of {grid.WIDE} or more dimensions have a third of the seeds, and two at least, from "
        f"T = {table.power(grid.WIDE_ROUNDS)} on."
    )
    worlds = [
        f"{p.title} (`{p.name}`, rewards clipped to [{low:g}, {high:g}])"
        for p in run.shown
        for low, high in [p.reward_range]
    ]
    lines.append(f"- Worlds: {'; '.join(worlds)}. LinUCB and random play never clip.")
    lines.append(
        "- Every algorithm has its own defaults for everything but (ε, δ), the range of rewards, "
        "the horizon and the world's public contexts."
    )
    reasons: dict[tuple[str, str], list[str]] = {}
    for world, label, reason in run.skipped:
        reasons.setdefault((label, reason), []).append(world)
    lines += [
        f"- Not run: `{label}` on {', '.join(worlds)}: {reason}."
        for (label, reason), worlds in reasons.items()
    ]
    lines += [f"- Left out: {text}" for text in run.left_out]
    lines += [
        f"- Not played: {section.TITLE}. `dpbandit bench privacy-cost --only {name}` plays it."
        for name, section in SECTIONS.items()
        if name not in run.sections
    ]
    lines += _codes(run, standings)
    lines.append(
        f"- Version {__version__}. The same command gives the same numbers on any number of cores."
    )
    return "\n".join(lines)


def _codes(run: Run, standings: pd.DataFrame) -> list[str]:
    """Of which code every cell is, by its fingerprint."""
    new = standings[~standings["kept"].astype(bool)]
    lines = [f"- Code `{run.code}` played what is not said otherwise here."]
    for code, part in new[new["code"] != run.code].groupby("code"):
        labels = ", ".join(f"`{label}`" for label in sorted(set(part["label"])))
        again = (
            f" In each world today's code repeats their first seed at T = {table.power(min(run.profile.seeds))} "
            "to the last bit, so they were not played again."
        )
        lines.append(
            f"- Code `{code}` played {labels}, and the references." + (again if run.checked else "")
        )
    for code, part in standings[standings["kept"].astype(bool)].groupby("code"):
        cells = part.drop_duplicates(table.CELL)
        lines.append(
            f"- Code `{code}`, an earlier one, played {len(cells)} cells, which are marked "
            f"{table.KEPT}. A cell is of one table as a whole."
        )
    return lines


def write(
    run: Run, standings: pd.DataFrame, folder: str | Path, docs: str | Path | None = None
) -> list[Path]:
    """Tables (Parquet, CSV, Markdown), picture (SVG, PNG) and configuration into a folder; the page
    also to `docs`, its picture beside it. Worlds of a table there that were not played stay.
    """
    folder = Path(folder)
    if docs is not None:
        standings = table.merged(standings, run, Path(docs).with_suffix(".csv"))
        for name in SECTIONS:
            earlier = section_beside(Path(docs), name)
            if name not in run.sections and earlier.exists():
                run.sections[name] = pd.read_csv(earlier)
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        name: folder / f"leaderboard.{name}" for name in ("parquet", "csv", "svg", "png", "md")
    }
    standings.to_parquet(files["parquet"])
    standings.to_csv(files["csv"], index=False, float_format="%.6g")
    files["small"] = folder / "leaderboard-small.png"
    summary.figure(standings).savefig(files["small"], dpi=150)
    picture = drawing.figure(standings)
    picture.savefig(files["svg"], metadata={"Date": None})
    picture.savefig(files["png"], dpi=150)
    files["md"].write_text(page(run, standings, "leaderboard.png"))
    files["json"] = folder / "config.json"
    files["json"].write_text(json.dumps(_config(run), indent=1, ensure_ascii=False))
    written = list(files.values())
    for name, rows in run.sections.items():
        written.append(section_beside(files["md"], name))
        rows.to_csv(written[-1], index=False, float_format="%.6g")
    if docs is not None:
        target = Path(docs)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page(run, standings, f"{target.stem}.png"))
        written.append(target)
        small = target.with_name(f"{target.stem}-small.png")
        written.append(Path(shutil.copyfile(files["small"], small)))
        for ending in ("png", "svg", "csv"):
            written.append(Path(shutil.copyfile(files[ending], target.with_suffix(f".{ending}"))))
        for name in run.sections:
            pair = (section_beside(one, name) for one in (files["md"], target))
            written.append(Path(shutil.copyfile(*pair)))
    return written


def section_beside(page: Path, name: str) -> Path:
    """Where the rows of a section are."""
    return page.with_name(f"{page.stem}-{name}.csv")


def _config(run: Run) -> dict[str, Any]:
    return {
        "profile": run.profile.name,
        "seeds": {str(t): n for t, n in run.profile.seeds.items()},
        "slow_seeds": {str(t): n for t, n in run.profile.slow_seeds.items()},
        "budgets": [list(b) for b in run.profile.budgets],
        "worlds": {
            p.name: {"title": p.title, "reward_range": list(p.reward_range)} for p in run.places
        },
        "lines": {
            e.label: {"algorithm": e.algorithm, "options": dict(e.options)} for e in run.entries
        },
        "skipped": [list(s) for s in run.skipped],
        "left_out": run.left_out,
        "complete": run.complete,
        "seconds": round(run.seconds, 1),
        "code": code_version(),
        "versions": {
            "python": platform.python_version(),
            "dpbandit": __version__,
            **{n: version(n) for n in ("numpy", "scipy", "pandas")},
            "engine": core_status(),
        },
    }


def as_json(run: Run, standings: pd.DataFrame, files: list[Path]) -> dict[str, Any]:
    """What the command prints with --json: every line of every cell with its claim's status, and
    the winners.
    """
    rows = [
        {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in row.items()}
        for row in standings.to_dict(orient="records")
    ]
    return {
        "profile": run.profile.name,
        "complete": run.complete,
        "standings": rows,
        "winners": [w.to_dict() for w in table.winners(standings)],
        "default": [gap._asdict() for gap in default.against_best(standings)],
        "sections": {name: rows.to_dict(orient="records") for name, rows in run.sections.items()},
        "skipped": [
            {"world": w, "label": label, "reason": reason} for w, label, reason in run.skipped
        ],
        "left_out": run.left_out,
        "files": [str(path) for path in files],
    }
