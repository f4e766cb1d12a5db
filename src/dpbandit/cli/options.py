"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from dpbandit.cli import names
from dpbandit.errors import OptionError

Json = Annotated[bool, Option("--json", help="Print only JSON on standard output.")]
Algorithm = Annotated[
    str, Argument(help="The algorithm.", metavar="ALGORITHM", autocompletion=names.algorithm)
]
Noise = Annotated[
    str | None,
    Option(
        help="gaussian, laplace or laplace-l2; default: the algorithm's own.",
        autocompletion=names.one_of("gaussian", "laplace", "laplace-l2"),
    ),
]
Cluster = Annotated[
    str | None,
    Option(
        help="Spread the work over a Ray cluster: its address (ray://host:10001 from anywhere, host:6379 on one of its nodes), "
        "auto for this machine's cluster, local for a new one here. Same numbers; see docs/cluster.md.",
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
        help="Protect a person, however often they come: learn from at most this many of their clicks "
        "(or this total of their rewards); 0 for another unit.",
    ),
]
Clicks = Annotated[
    bool,
    Option(
        "--clicks",
        help="Rewards are 0 or a fixed number, such as 1 for a click: anytime and anytime-joint then "
        "learn from fewer of them.",
    ),
]


UserSpread = Annotated[
    float,
    Option(
        "--user-spread",
        help="Protect a user, however often they come: learn from their rewards as long as together they "
        "move sums no further than this many in one context would; 0 for another unit.",
    ),
]


def rewards_of(clicks: bool) -> dict[str, Any]:
    """What rewards are, as an option of `dpb.make`; nothing for numbers."""
    return {"rewards": "clicks"} if clicks else {}


def unit_of(user_rewards: int, person_clicks: float, user_spread: float = 0) -> dict[str, Any]:
    """The requested unit, as an option of `dpb.make`; nothing for one reward."""
    asked = {"user": user_rewards, "person": person_clicks, "spread": user_spread}
    given = [(kind, most) for kind, most in asked.items() if most]
    if len(given) > 1:
        raise OptionError(
            "--user-rewards, --person-clicks and --user-spread each set the unit: give only one of "
            "them"
        )
    return {"unit": given[0]} if given else {}
