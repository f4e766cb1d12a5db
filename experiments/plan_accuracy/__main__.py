"""How well `dpb.plan` predicts, in a clone:

python -m experiments.plan_accuracy simulate build/plan   # slow, once; goes on where it stopped
python -m experiments.plan_accuracy predict build/plan    # after every change of the planner
python -m experiments.plan_accuracy told build/plan       # for a plan that is told what θ may be
python -m experiments.plan_accuracy lastfm build/plan     # does the recommendation hold on data?
python -m experiments.plan_accuracy clicks build/plan docs/plan-accuracy.md  # that section alone
python -m experiments.plan_accuracy report build/plan docs/plan-accuracy.md
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

from dpbandit.errors import PrivacyWarning
from experiments.plan_accuracy import clicks, measure, page


def main() -> None:
    """Do one of the six steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "step", choices=["simulate", "predict", "told", "lastfm", "clicks", "report"]
    )
    parser.add_argument("folder", type=Path, help="where measurements and predictions are kept")
    parser.add_argument(
        "page",
        type=Path,
        nargs="?",
        help="the page that `report` writes, and `clicks` a section of",
    )
    parser.add_argument(
        "--most-rounds", type=int, default=measure.HORIZONS[-1], help="leave longer runs out"
    )
    given = parser.parse_args()
    if (given.step in ("clicks", "report")) != (given.page is not None):
        parser.error("`clicks` and `report` write a page, and the other steps do not")
    warnings.simplefilter("ignore", PrivacyWarning)
    match given.step:
        case "simulate":
            measure.simulate(given.folder, given.most_rounds)
        case "predict" | "told":
            measure.predict(given.folder, given.most_rounds, told=given.step == "told")
        case "lastfm":
            measure.lastfm(given.folder)
        case "clicks":
            clicks.catalogues(given.folder)
            clicks.persons(given.folder)
            clicks.put_into(given.page, given.folder)
        case "report":
            page.report(given.folder, given.page)
        case other:
            raise ValueError(f"no step is called {other!r}")


if __name__ == "__main__":
    main()
