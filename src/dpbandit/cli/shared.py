"""What the commands share: the application, where to print, and options that several of them take."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich.console import Console
except ImportError:  # the library alone was installed
    sys.exit("the command line needs the extra 'lab': pip install 'dpbandit[lab]'")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    help="Contextual bandits with differential privacy that can be checked.",
    epilog="Start with: [bold]dpbandit reproduce[/bold] or [bold]dpbandit run[/bold]; [bold]dpbandit algorithms[/bold] lists what there is.",
)
out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, nothing else.")]
Noise = Annotated[str | None, typer.Option(help="gaussian, laplace or laplace-l2; the algorithm's own if not given.")]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Spread the work over a Ray cluster: its address (ray://host:10001 from anywhere, host:6379 on one of its nodes), "
        "auto for the one this machine is part of, local for a new one here. Same numbers; see docs/cluster.md.",
        metavar="ADDRESS",
    ),
]
Folder = Annotated[Path | None, typer.Option("--out", help="Write results here.")]
Device = Annotated[
    str, typer.Option(help="cpu, or cuda: a GPU, through CuPy (pip install 'dpbandit\\[gpu]').", metavar="cpu|cuda")
]


def starting(cluster: str | None) -> str:
    """What a bar says before there is progress."""
    return f"starting ({'every node ' if cluster else ''}compiles once, under a minute)"
