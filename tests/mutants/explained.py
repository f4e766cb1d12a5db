"""Mutants that no judge refuses although a number changes, or that no judge reaches: why each does not
change what is released. docs/audits.md shows these lines.

    python tests/mutants/explained.py --write        puts them there
    python tests/mutants/explained.py --run FOLDER COMMIT
                                                     and what a run found: python.jsonl and core.jsonl
                                                     there, and fuzz*.json of random stories

By reason: `function | before → after`, as the runner prints them, or `file | kind: line` for the core.
A text may end with `…`: then the beginning counts. What explains nothing any more is an error, like a
survivor that nobody explains.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs" / "audits.md"
START, END = "<!-- mutants: start -->", "<!-- mutants: end -->"
Reasons = dict[str, list[str]]

PYTHON: Reasons = {
    "words of a claim, and no claim is made": ["algorithms.linucb:design | 0.0 → 1.0"],
    "which δ is tried for the ε of several claims: each found is checked before it counts": [
        "evaluate.release:_joint | 0.02 → 0.04",
        "evaluate.release:_joint | 0.1 → 0.2",
    ],
    "which simulated number is drawn: it protects nobody, and every estimate has a key of its own": [
        "evaluate.release:<module> | 1 → 2"
    ],
    "when sums are first shown: any schedule is private": ["algorithms.anytime:design | 1 → 2"],
    "the first whitener of a public sample, where it says nothing: norms are 1 under any": [
        "algorithms.anytime_joint:known_second | 1.0 → 0.0",
        "algorithms.anytime_joint:known_second | 1.0 / d → 1.0 * d",
        "algorithms.anytime_joint:known_second | 1.0 → 2.0",
    ],
    "words of an error": [
        "service.measure:_adds_squares | \"; give local='never'\" if claim.notion == 'parallel'…",
        "service.measure:_adds_squares | claim.notion == 'parallel' → claim.notion != 'parallel'",
    ],
    "what a filter assumes without any noise (ε = ∞), where nothing is claimed": [
        "learners.pair:<module> | 1e-06 → 2e-06",
        "learners.filter:<module> | 1e-06 → 2e-06",
    ],
    "what every exchange gives away beyond the solver's error: more of it is on the safe side": [
        "privacy.accounting:<module> | 1e-10 → 2e-10"
    ],
    "the engine always gives it; a default that is larger would be more noise": [
        "reference.bound:LazyBound.after | 0.0 → 1.0"
    ],
    "not reached: the engine refuses a commit first, since nothing is pending": [
        "learners.ridge:InTheClear.commit | raise ValueError(…",
        "learners.learner:NoLearner.commit | raise ValueError(…",
    ],
    "Wishart noise is for simulations alone, and any λ is valid: the best one is looked for elsewhere": [
        "privacy.wishart:losses | 1000000.0 → 2000000.0",
        "privacy.wishart:losses | math.log(0.01) → 0.01",
        "privacy.wishart:losses | 0.01 → 0.02",
        "privacy.wishart:_lowest | 1e-05 → 2e-05",
    ],
    "Wishart noise is for simulations alone; a larger margin for rounding": [
        "privacy.wishart:<module> | 1e-06 → 2e-06"
    ],
    "Wishart noise is for simulations alone; the judges' own quadrature resolves 10⁻³ of its price, and "
    "these change less. **They could be on the unsafe side**": [
        "privacy.wishart:losses | rows > 0 → rows >= 0",
        "privacy.wishart:losses | 1 → 2",
        "privacy.wishart:losses | degrees + 14 * spread → degrees - 14 * spread",
        "privacy.wishart:losses | 1 - MARGIN → 1 + MARGIN",
        "privacy.wishart:losses | delta * (1 - TRUNCATED * (1 + (rows > 0))) * (1 - MARGIN) → delta…",
    ],
}
CORE: Reasons = {
    "`dgs-published`: nothing is proven": [
        "bandit/parameter.hpp | / → *: eigenvalue = o.smallest_eigenvalue * t / 16;",
        "bandit/parameter.hpp | * → /: eigenvalue = o.smallest_eigenvalue * t / 16;",
        "bandit/parameter.hpp | / → *: return eigenvalue <= o.ridge ? cap : o.sensitivity / eigenvalue;",
    ],
    "when the whitener follows the contexts, which are public: norms are 1 under any": [
        "bandit/anytime.hpp | 0 → 1: if (!prior.is_public && …",
        "bandit/anytime.hpp | == → !=: if (!prior.is_public && …",
        "bandit/anytime.hpp | / → *: if (z.n > 64 && later < …",
        "bandit/anytime.hpp | * → /: if (z.n > 64 && later < …",
        "bandit/anytime.hpp | < → <=: if (z.n > 64 && later < …",
    ],
    "no ratio that is allowed comes here: t·ratio rounds up to t + 1 at least": [
        "release/anytime.hpp | 1 → 2: return up > t ? up : t + 1;",
        "release/anytime.hpp | + → -: return up > t ? up : t + 1;",
        "learner/local.hpp | 1 → 2: times->due = up > t ? up : t + 1;",
        "learner/local.hpp | + → -: times->due = up > t ? up : t + 1;",
    ],
    "a context that noise moved to exactly 0: it stays there": [
        "held.hpp | 1 → 2: double factor = square > 0 ? …"
    ],
}


def line_for(reasons: Reasons, where: str, change: str) -> str:
    """The line that explains this survivor; empty: nobody did."""
    for lines in reasons.values():
        for line in lines:
            place, _, text = line.partition(" | ")
            begins = text.removesuffix("…")
            if place == where and (
                text == change or (begins != text and change.startswith(begins))
            ):
                return line
    return ""


def table() -> str:
    """For the documentation."""
    rows = ["| where | change | why no released number changes |", "|---|---|---|"]
    for reasons in (PYTHON, CORE):
        for reason, lines in reasons.items():
            for line in lines:
                place, _, text = line.replace("|", "\\|").partition(" \\| ")
                rows.append(f"| `{place}` | `{text}` | {reason} |")
    return "\n".join(rows)


RUN = "<!-- whole run: start -->", "<!-- whole run: end -->"
SHOWN = ("killed", "equivalent", "last digits")


def counted(rows: Iterable[dict[str, Any]], reasons: Reasons) -> tuple[Counter[str], list[str]]:
    """Verdicts by name, those that need a reason apart; and which of these have none.

    >>> reasons = {"words": ["a:f | 1 → 2"]}
    >>> verdict = {"where": "a:f", "change": "1 → 2", "words": "a:f#constant.0", "verdict": "survived"}
    >>> counted([verdict, {**verdict, "change": "1 → 0"}], reasons)
    (Counter({'explained': 1, 'unexplained': 1}), ['survived: a:f#constant.0'])
    """
    count: Counter[str] = Counter()
    unexplained = []
    for row in rows:
        if row["verdict"] in SHOWN:
            count[row["verdict"]] += 1
        elif line_for(reasons, row["where"], row["change"]):
            count["explained"] += 1
        else:
            count["unexplained"] += 1
            unexplained.append(f"{row['verdict']}: {row['words']}")
    return count, unexplained


def whole_run(folder: Path, commit: str) -> tuple[str, list[str]]:
    """What a run found, for the documentation, and what nobody has explained yet."""
    kinds = (*SHOWN, "explained", "unexplained")
    lines = [f"| commit {commit} | mutants | tried | {' | '.join(kinds)} |"]
    lines.append("|---" * (len(kinds) + 3) + "|")
    open_ = []
    for name, reasons in (("python", PYTHON), ("core", CORE)):
        file = folder / f"{name}.jsonl"
        if file.exists():
            text = file.read_text(encoding="utf-8")
            count, unexplained = counted(map(json.loads, text.splitlines()), reasons)
            numbers = [_number_of_all(name, folder), count.total(), *map(count.__getitem__, kinds)]
            lines.append(f"| {name} | {' | '.join(f'{each:,}' for each in numbers)} |")
            open_ += unexplained
    if stories := [
        json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("fuzz*.json"))
    ]:
        lines += ["", told(stories)]
    return "\n".join(lines), open_


def told(stories: list[dict[str, Any]]) -> str:
    """What random stories cost, from several runs of 500 a seed.

    >>> run = {"seed": 7, "asked": 1_000, "cases": 1_000, "processor_seconds": 12.0}
    >>> run |= {"findings": [], "errors": [], "highest": {"dgs": 0.5, "local": 1.0}}
    >>> print(told([run, {**run, "seed": 90}])[:93])
    Random stories on the same commit: 2,000 (500 of each of the seeds 7 to 8 and 90 to 91, in 24
    """
    seeds = [f"{one['seed']:,} to {one['seed'] + one['asked'] // 500 - 1:,}" for one in stories]
    highest: dict[str, float] = {}
    for one in stories:
        for name, ratio in one["highest"].items():
            highest[name] = max(highest.get(name, 0.0), ratio)
    most = sorted(highest.items(), key=lambda each: each[1])
    cases, seconds = (sum(one[name] for one in stories) for name in ("cases", "processor_seconds"))
    found, failed = (sum(len(one[name]) for one in stories) for name in ("findings", "errors"))
    return (
        f"Random stories on the same commit: {cases:,} (500 of each of the seeds {' and '.join(seeds)}, in "
        f"{seconds:,.0f} s of a processor). {found} broke a claim, {failed} ended in an error not raised on "
        f"purpose. The highest exact cost of any algorithm was {most[-1][1]:.10f} of its claim "
        f"(`{most[-1][0]}`), the lowest such maximum {most[0][1]:.10f} (`{most[0][0]}`)."
    )


def _number_of_all(name: str, folder: Path) -> int:
    """How many mutants there are: of the core, the run said it first."""
    if name == "core":
        return int((folder / "core.log").read_text(encoding="utf-8").split()[0])
    import targets

    return len(targets.all_mutants())


def between(start: str, end: str, text: str) -> None:
    before, rest = DOCS.read_text(encoding="utf-8").split(start)
    DOCS.write_text(f"{before}{start}\n{text}\n{end}{rest.split(end)[1]}", encoding="utf-8")


def written() -> str:
    """What the documentation shows."""
    return DOCS.read_text(encoding="utf-8").split(START)[1].split(END)[0].strip()


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        between(START, END, table())
    elif sys.argv[1:2] == ["--run"]:
        found, nobody = whole_run(Path(sys.argv[2]), sys.argv[3])
        between(*RUN, found)
        between(START, END, table())
        print(found, *nobody, sep="\n")
    else:
        print(table())
