"""Runs the experiments that are missing, draws the figures, judges the claims and writes the
report.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from dpbandit import __version__, spread
from dpbandit.engine import core_status
from dpbandit.errors import OptionError, PrivacyWarning, nearest
from dpbandit.spread import Place
from experiments.reproduction import drawings, report, verdicts
from experiments.reproduction.parts import EXPERIMENTS, FIGURES, Experiment
from experiments.reproduction.setting import profile

Progress = Callable[[str, int, int], None]


@dataclass
class Reproduction:
    """What a reproduction left in its folder."""

    folder: Path
    verdicts: list[verdicts.Verdict]
    left_out: list[str] = field(default_factory=list)
    complete: bool = True
    files: list[Path] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "verdicts": [v.to_dict() for v in self.verdicts],
            "left_out": self.left_out,
            "complete": self.complete,
            "files": [str(path) for path in self.files],
        }


def reproduce(
    folder: str | Path,
    *,
    size: str = "quick",
    figures: Iterable[str] | None = None,
    cluster: str | Place | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Reproduce the paper's experiments into a folder; finished parts of an interrupted run are
    used again.

    `cluster` spreads seeds and settings over a Ray cluster.
    """
    folder, sizes = Path(folder), profile(size)
    wanted = tuple(figures or FIGURES)
    for name in wanted:
        if name not in FIGURES:
            raise OptionError(f"no figure is called {name!r}: {nearest(name, FIGURES)}")
    tables_folder = folder / "tables"
    tables_folder.mkdir(parents=True, exist_ok=True)
    say = progress or (lambda what, done, total: None)
    result = Reproduction(folder, [])
    tables: dict[str, pd.DataFrame] = {}
    stamp = hashlib.sha256(
        json.dumps([asdict(sizes), __version__], sort_keys=True).encode()
    ).hexdigest()[:16]
    try:
        with spread.over(cluster) as place:
            for experiment in EXPERIMENTS:
                if figures is not None and not set(experiment.figures) & set(wanted):
                    continue
                try:
                    tables[experiment.name] = _table(
                        experiment, sizes, tables_folder, stamp, say, place
                    )
                except FileNotFoundError as missing:
                    if str(missing) not in result.left_out:
                        result.left_out.append(str(missing))
    except KeyboardInterrupt:
        result.complete = False
        result.left_out.append("interrupted: run the same command again to go on from here")
    drawn = {}
    for name in wanted:
        try:
            drawn[name] = drawings.DRAW[name](tables)
        except KeyError:
            continue
        for ending in ("svg", "png"):
            path = folder / f"figure-{name}.{ending}"
            drawn[name].savefig(path, dpi=150)
            result.files.append(path)
    result.verdicts = verdicts.judge(tables)
    config = _config(size, asdict(sizes), result.left_out)
    extra = {
        title: tables[name]
        for name, title in (
            ("assumption", "The assumption on contexts"),
            ("open-bandit", "Open Bandit, replayed (real clicks; too few to rank policies)"),
        )
        if name in tables
    }
    (folder / "verdicts.json").write_text(
        json.dumps([v.to_dict() for v in result.verdicts], indent=1, ensure_ascii=False)
    )
    (folder / "config.json").write_text(json.dumps(config, indent=1, ensure_ascii=False))
    (folder / "report.html").write_text(
        report.page(result.verdicts, drawn, result.left_out, config, extra)
    )
    result.files += [folder / "verdicts.json", folder / "config.json", folder / "report.html"]
    return result


def _table(
    experiment: Experiment, sizes: Any, folder: Path, stamp: str, say: Progress, place: Place
) -> pd.DataFrame:
    """The experiment's table: from an earlier run of the same size and version, or made now."""
    path, mark = folder / f"{experiment.name}.parquet", folder / f"{experiment.name}.stamp"
    if path.exists() and mark.exists() and mark.read_text() == stamp:
        return pd.read_parquet(path)
    say(experiment.name, 0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # the paper's δ is what is being reproduced
        frame = experiment.make(sizes, lambda done, total: say(experiment.name, done, total), place)
    temporary = path.with_suffix(".part")
    frame.to_parquet(temporary)
    os.replace(temporary, path)
    frame.to_csv(path.with_suffix(".csv"), index=False)
    mark.write_text(stamp)
    return frame


def _config(size: str, sizes: dict[str, Any], left_out: list[str]) -> dict[str, Any]:
    return {
        "profile": size,
        "sizes": sizes,
        "setting": {
            "epsilon": 2.0,
            "delta": 0.1,
            "alpha": 0.3,
            "ridge": 1.0,
            "reward_range": {"simulation": [-0.5, 1.5], "LastFM": [0, 1]},
        },
        "seeds": "0, 1, 2, … of the count given",
        "left_out": left_out,
        "versions": {
            "python": platform.python_version(),
            "dpbandit": __version__,
            **{
                n: version(n)
                for n in ("numpy", "scipy", "pandas", "scikit-learn", "matplotlib", "opendp")
            },
            "engine": core_status(),
        },
    }
