"""`dpbandit serve`, `keys` and `store`: run the service, make its keys, decide about its store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from dpbandit.cli import extras, names
from dpbandit.cli.options import Json
from dpbandit.cli.shared import app, err, note, print_json, say
from dpbandit.errors import OptionError

if TYPE_CHECKING:
    from dpbandit.service.store import Store as OpenStore
    from dpbandit.service.witness import Witness

Store = Annotated[
    str,
    Option(
        "--store", help="sqlite:///file.db or postgresql://user@host/name.", envvar="DPBANDIT_STORE"
    ),
]
Folder = Annotated[
    Path | None,
    Option(
        "--witness",
        help="Folder that tells an old copy of the store from the newest; not in the store's.",
    ),
]
Bandit = Annotated[str, Option("--bandit", help="The bandit's name.")]

keys = typer.Typer(
    no_args_is_help=True,
    help="Keys to the service: create, list, revoke.\n\n[dim]Example:[/dim]  "
    "dpbandit keys create --role admin --store sqlite:///bandits.db",
)
store_ = typer.Typer(
    no_args_is_help=True,
    help="The service's store: its state, and what only an operator may decide.\n\n"
    "[dim]Example:[/dim]  dpbandit store status --store sqlite:///bandits.db",
)
app.add_typer(keys, name="keys")
app.add_typer(store_, name="store")


@app.command()
def serve(
    context: typer.Context,
    store: Store,
    port: int | None = Option(None, help="Port to listen on; 8080 unless only learning."),
    host: str = Option("127.0.0.1", help="Address to listen on."),
    role: str = Option(
        "all",
        help="ranker (answers), learner (reads rewards, one per bandit), or all.",
        autocompletion=names.one_of("ranker", "learner", "all"),
    ),
    cap_epsilon: float | None = Option(
        None, help="All bandits of this store together may promise at most this ε; set once."
    ),
    cap_delta: float | None = Option(None, help="The δ of that cap."),
    witness: Folder = None,
    bandits: list[str] | None = Option(
        None, "--learn", help="Learn for this bandit only; may be given several times."
    ),
    lease_seconds: float = Option(10.0, help="How long a silent learner keeps its bandits."),
    release_seconds: float = Option(0.25, help="Pause between two looks for decisions to learn."),
    retain_rewards: float = Option(3_600.0, help="Seconds until a learned reward is erased."),
    retain_decisions: float = Option(604_800.0, help="Seconds until a learned decision is erased."),
    max_body: int = Option(4 << 20, help="Largest request, in bytes."),
    max_arms: int = Option(1_000, help="Most arms in one decision."),
    max_dim: int = Option(512, help="Most features of a context."),
    max_rewards: int = Option(1_000, help="Most rewards in one call."),
    body_seconds: float = Option(10.0, help="How long a request may take to arrive."),
    max_connections: int = Option(10_000, help="Most connections at a time."),
    allow_unproven: bool = Option(
        False, "--allow-unproven", help="Also serve algorithms whose privacy is not proven."
    ),
    keep_transcript: bool = Option(
        False, "--keep-transcript", help="Keep every noisy value, so that learning can be replayed."
    ),
    json_: bool = Option(
        False,
        "--json",
        help="Print one JSON line on standard output when it listens; log lines on standard "
        "error are JSON too.",
    ),
) -> None:
    """Serve bandits over HTTP: decisions, rewards, privacy accounts. docs/operate.md says how to
    run it.

    Ctrl-C and SIGTERM let requests in hand finish; the exit status is then 0.

    [dim]Examples:[/dim]

    dpbandit serve --store sqlite:///bandits.db --port 8080

    dpbandit serve --store postgresql://app@db/bandits --role ranker --port 8081

    dpbandit serve --store postgresql://app@db/bandits --role learner --witness
    /var/lib/dpbandit/witness
    """
    if role not in ("ranker", "learner", "all"):
        raise OptionError(f"--role is ranker, learner or all, not {role!r}")
    if (cap_epsilon is None) != (cap_delta is None):
        raise OptionError("a cap needs both --cap-epsilon and --cap-delta")
    with _opened(store, create=True) as opened:
        if cap_epsilon is not None and cap_delta is not None:
            opened.set_cap(cap_epsilon, cap_delta)
        in_force = "SELECT 1 FROM keys WHERE revoked_at IS NULL LIMIT 1"
        if role != "learner" and not opened.connection.all(in_force):
            note("nobody has a key yet: dpbandit keys create --role admin --store …")
    from dpbandit.service.server import serve as run
    from dpbandit.service.settings import Settings

    # Nearly all options have the names of the settings.
    given = {name: value for name, value in context.params.items() if hasattr(Settings, name)}
    given |= {"port": 8080 if port is None else port, "bandits": tuple(bandits or ())}
    run(Settings(store, json=json_, **given), health_port=role != "learner" or port is not None)


@keys.command("create")
def create_key(
    role: Annotated[
        str,
        Option(
            help="rank (decisions), reward (rewards) or admin (everything).",
            autocompletion=names.one_of("rank", "reward", "admin"),
        ),
    ],
    store: Store,
    label: str = Option("", help="A note on who has it."),
    json_: Json = False,
) -> None:
    """Make a key. It is shown now and never again; the store keeps a hash.

    [dim]Example:[/dim]  dpbandit keys create --role admin --store sqlite:///bandits.db
    """
    with _opened(store, create=True) as opened:
        from dpbandit.service.keys import create

        key = create(opened.connection, role, label=label)
    if json_:
        print_json({"role": role, "key": key})
    else:
        print(f"a key for {role}, shown this once: {key}")


@keys.command("list")
def list_keys(store: Store, json_: Json = False) -> None:
    """List keys by id, without the keys themselves.

    [dim]Example:[/dim]  dpbandit keys list --store sqlite:///bandits.db
    """
    with _opened(store) as opened:
        columns = ("id", "role", "label", "created_at", "revoked_at")
        rows = opened.connection.all(f"SELECT {', '.join(columns)} FROM keys ORDER BY created_at")
    listed = [dict(zip(columns, row, strict=True)) for row in rows]
    for key in listed:  # seconds, where the store has microseconds
        key |= {name: key[name] and key[name] / 1e6 for name in ("created_at", "revoked_at")}
    if json_:
        print_json(listed)
        return
    for key in listed:
        state = "in force" if key["revoked_at"] is None else "revoked"
        say(f"{key['id']}  {key['role']:6}  {state}  {key['label']}")


@keys.command("revoke")
def revoke_key(
    key: Annotated[str, typer.Argument(help="The key's id, or the key.", metavar="ID")],
    store: Store,
    json_: Json = False,
) -> None:
    """End a key. Rankers stop taking it within a second.

    [dim]Example:[/dim]  dpbandit keys revoke 3fa95c0e12ab --store sqlite:///bandits.db
    """
    with _opened(store) as opened:
        from dpbandit.service.keys import revoke

        if not revoke(opened.connection, key):
            raise OptionError("there is no such key in force: dpbandit keys list shows them")
    print_json({"revoked": True}) if json_ else say("revoked")


@store_.command("status")
def status(store: Store, json_: Json = False) -> None:
    """Show each bandit, whether it learns, and why not.

    [dim]Example:[/dim]  dpbandit store status --store sqlite:///bandits.db
    """
    with _opened(store) as opened:
        lines, restored = opened.lines(), opened.meta("restored")
    if json_:
        shown = ("name", "status", "reason", "decisions", "learned")
        rows = [
            {n: getattr(line, n) for n in shown} | {"model_version": line.version} for line in lines
        ]
        print_json({"restored": restored, "bandits": rows})
        return
    if restored:
        err.print(restored, style="red", highlight=False, markup=False)
    if not lines:
        say("no bandit yet: POST /v1/bandits makes one")
    for line in lines:
        progress = f"{line.learned:,} of {line.decisions:,} decisions learned"
        words = f"{line.name}: {line.status}, {progress}"
        say(f"{words}: {line.reason}" if line.reason else words)


@store_.command("accept-restore")
def accept_restore(
    store: Store,
    bandit: str | None = Option(None, "--bandit", help="The bandit to decide about."),
    pay_again: bool = Option(
        False,
        "--pay-again",
        help="Go on learning from the old copy; the bandit's budget counts once more.",
    ),
    retire: bool = Option(False, "--retire", help="Rank for ever, learn no more."),
    lost: bool = Option(
        False, "--lost", help="Book the budgets of bandits that the old copy lacks as spent."
    ),
    witness: Folder = None,
    json_: Json = False,
) -> None:
    """Decide about a store that was restored from an old copy.

    What was released after the copy was made cannot be taken back. --retire ends learning;
    --pay-again goes on and counts the bandit's budget once more, in its own claim and under the
    cap.

    [dim]Examples:[/dim]

    dpbandit store accept-restore --store sqlite:///bandits.db --bandit shop --retire

    dpbandit store accept-restore --store sqlite:///bandits.db --lost
    """
    if (bandit is not None) != (pay_again != retire) or (bandit is None and not lost):
        raise OptionError("say --lost, or --bandit NAME with one of --retire and --pay-again")
    decided: dict[str, Any] = {}
    with _opened(store) as opened:
        from dpbandit.service import restore

        seen = _witness(opened, witness)
        if lost:
            decided["booked as spent"] = restore.accept_lost(opened, seen)
        if bandit is not None:
            decided[bandit] = restore.accept_restore(opened, seen, bandit, pay_again=pay_again)
    _say(decided, json_)


def _say(decided: dict[str, Any], json_: bool) -> None:
    if json_:
        print_json(decided)
        return
    for what, words in decided.items():
        say(f"{what}: {words if isinstance(words, str) else ', '.join(words) or 'none'}")


@store_.command("trust")
def trust(store: Store, bandit: Bandit, witness: Folder = None, json_: Json = False) -> None:
    """Vouch that this store is the newest copy: for a learner that moved to a machine without a
    witness.

    [dim]Example:[/dim]  dpbandit store trust --store postgresql://app@db/bandits --bandit shop
    """
    with _opened(store) as opened:
        from dpbandit.service import restore

        _say({bandit: restore.trust(opened, _witness(opened, witness), bandit)}, json_)


@store_.command("resume")
def resume(store: Store, bandit: Bandit, json_: Json = False) -> None:
    """Learn again after a failure whose cause was removed.

    [dim]Example:[/dim]  dpbandit store resume --store sqlite:///bandits.db --bandit shop
    """
    with _opened(store) as opened:
        from dpbandit.service import restore

        _say({bandit: restore.resume(opened, bandit)}, json_)


@contextlib.contextmanager
def _opened(url: str, *, create: bool = False) -> Iterator[OpenStore]:
    """The store, closed at the end."""
    if not extras.there("msgspec") or not extras.there("uvicorn"):
        raise OptionError(f"the service needs the extra 'service': {extras.pip_install('service')}")
    from dpbandit.service.store import Store as Open

    with contextlib.closing(Open(url, create=create)) as store:
        yield store


def _witness(store: OpenStore, folder: Path | None) -> Witness:
    from dpbandit.service.witness import Witness, default_place

    # Never made here: an empty one would explain everything away.
    return Witness(folder or default_place(store.meta("store") or ""), create=False)
