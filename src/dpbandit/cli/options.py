"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from dpbandit.cli import names
from dpbandit.errors import OptionError

Json = Annotated[bool, Option("--json", help="Print JSON on standard output, nothing else.")]
Algorithm = Annotated[
    str, Argument(help="The algorithm.", metavar="ALGORITHM", autocompletion=names.algorithm)
]
Noise = Annotated[
    str | None,
    Option(
        help="gaussian, laplace or laplace-l2; the algorithm's own if not given.",
        autocompletion=names.one_of("gaussian", "laplace", "laplace-l2"),
    ),
]
Cluster = Annotated[
    str | None,
    Option(
        help="Spread the work over a Ray cluster: its address (ray://host:10001 from anywhere, host:6379 on one of its nodes), "
        "auto for the one this machine is part of, local for a new one here. Same numbers; see docs/cluster.md.",
        metavar="ADDRESS",
        autocompletion=names.one_of("auto", "local"),
    ),
]
Folder = Annotated[Path | None, Option("--out", help="Write results here.")]
Device = Annotated[
    str,
    Option(
        help="cpu, or cuda: a GPU, through CuPy (pip install 'dpbandit\\[gpu]').",
        metavar="cpu|cuda",
        autocompletion=names.one_of("cpu", "cuda"),
    ),
]
UserRewards = Annotated[
    int,
    Option(
        "--user-rewards", help="Protect a user with at most this many rewards; 0 for one reward."
    ),
]
PersonClicks = Annotated[
    float,
    Option(
        "--person-clicks",
        help="Protect a person, however often they come: so many of their clicks, or what their "
        "rewards may add up to, are learned from; 0 for another unit.",
    ),
]


UserSpread = Annotated[
    float,
    Option(
        "--user-spread",
        help="Protect a user, however often they come: rewards are learned from while together they "
        "move sums no further than so many in one context would; 0 for another unit.",
    ),
]


def unit_of(user_rewards: int, person_clicks: float, user_spread: float = 0) -> dict[str, Any]:
    """The unit that was asked for, as `dpb.make` takes it; nothing for one reward."""
    asked = {"user": user_rewards, "person": person_clicks, "spread": user_spread}
    given = [(kind, most) for kind, most in asked.items() if most]
    if len(given) > 1:
        raise OptionError(
            "--user-rewards, --person-clicks and --user-spread are units, and two units were given: "
            "give one of them"
        )
    return {"unit": given[0]} if given else {}
