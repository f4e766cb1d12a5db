"""`dpbandit serve`, `keys` and `store`: run the service, make its keys, decide about its store."""

from __future__ import annotations

import contextlib
import inspect
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from dpbandit.cli import extras, names
from dpbandit.cli.options import Json
from dpbandit.cli.shared import app, err, note, print_json, say
from dpbandit.errors import OptionError, StoreError
from dpbandit.service import settings

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
        help="Folder that distinguishes an old copy of the store from the newest; keep it outside the store's folder.",
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


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Eager: the file's settings rank below the command line and the environment."""
    if path is not None:
        by_name = {one.name: one.field for one in settings.TABLE}
        said = settings.read_file(path)
        context.default_map = {by_name[name]: value for name, value in said.items()}
    return path


_NAMES = {
    "role": names.one_of("ranker", "learner", "all"),
    "log_level": names.one_of("debug", "info", "warning", "error"),
}


def _parameter(one: settings.Setting) -> inspect.Parameter:
    """The option of a setting. Nothing is required here: the file may set it."""
    kind: Any = list[str] if one.kind is list else one.kind
    optional = one.required or one.may_lack or one.kind is list
    told = Option(
        *([one.flag] if one.kind is bool or one.name != one.field else []),
        help=one.words,
        envvar=one.variable,
        show_envvar=False,
        autocompletion=_NAMES.get(one.field),
    )
    return inspect.Parameter(
        one.field,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if optional else one.default,
        annotation=Annotated[kind | None if optional else kind, told],
    )


def _from_table(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with an option for each setting."""
    own = [
        one
        for one in inspect.signature(command, eval_str=True).parameters.values()
        if one.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    made = [_parameter(one) for one in settings.TABLE]
    command.__signature__ = inspect.Signature([*own, *made])  # type: ignore[attr-defined]
    return command


@app.command()
@_from_table
def serve(
    *,
    context: typer.Context,
    config: Annotated[
        Path | None,
        Option(
            help="A TOML file of settings: port = 8080.",
            envvar="DPBANDIT_CONFIG",
            show_envvar=False,
            is_eager=True,
            callback=_read_config,
        ),
    ] = None,
    **given: Any,
) -> None:
    """Serve bandits over HTTP: decisions, rewards, privacy accounts. docs/operate.md says how to
    run it.

    Every option can also be an environment variable (DPBANDIT_MAX_BODY) or a line of the --config
    file (max_body = 65536). The command line takes precedence, then the environment. Ctrl-C and
    SIGTERM let current requests finish; the exit status is then 0.

    [dim]Examples:[/dim]

    dpbandit serve --store sqlite:///bandits.db --port 8080

    dpbandit serve --store postgresql://app@db/bandits --role ranker --port 8081

    dpbandit serve --store postgresql://app@db/bandits --role learner --witness
    /var/lib/dpbandit/witness
    """
    _needs_service()
    settings.check_environment(os.environ)
    told = settings.settings_of(given)
    from dpbandit.service.server import one_thread
    from dpbandit.service.server import serve as run

    if told.role != "learner":
        one_thread()
    _wait_for(told.store, told.start_seconds)
    with _opened(told.store, create=True) as opened:
        if told.cap_epsilon is not None and told.cap_delta is not None:
            opened.set_cap(told.cap_epsilon, told.cap_delta)
        in_force = "SELECT 1 FROM keys WHERE revoked_at IS NULL LIMIT 1"
        if told.role != "learner" and not opened.connection.all(in_force):
            note("there is no key yet: dpbandit keys create --role admin --store …")
    run(told, health_port=told.role != "learner" or given["port"] is not None)


def _wait_for(url: str, seconds: float) -> None:
    """Wait until PostgreSQL is reachable: machines and containers start in any order. A file either
    exists or not."""
    from dpbandit.service.database import POSTGRES, connect

    if not url.startswith(POSTGRES):
        return
    until, said = time.monotonic() + seconds, ""
    while True:
        try:
            connect(url).close()
            return
        except StoreError as error:
            if time.monotonic() >= until or "extra" in str(error):
                raise
            if str(error) != said:
                said = str(error)
                note(f"{said}; waiting up to {seconds:g} s")
        time.sleep(min(0.5, max(until - time.monotonic(), 0.0)))


@keys.command("create")
def create_key(
    role: Annotated[
        str,
        Option(
            help="rank (decisions), reward (rewards), app (both) or admin (everything).",
            autocompletion=names.one_of("rank", "reward", "app", "admin"),
        ),
    ],
    store: Store,
    label: str = Option("", help="A note on who has it."),
    json_: Json = False,
) -> None:
    """Make a key. It is shown only once; the store keeps a hash.

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
    """Revoke a key. Rankers stop accepting it within two seconds.

    [dim]Example:[/dim]  dpbandit keys revoke 3fa95c0e12ab --store sqlite:///bandits.db
    """
    with _opened(store) as opened:
        from dpbandit.service.keys import revoke

        if not revoke(opened.connection, key):
            raise OptionError("no valid key matches: dpbandit keys list shows them")
    print_json({"revoked": True}) if json_ else say("revoked")


@store_.command("status")
def status(store: Store, json_: Json = False) -> None:
    """Show each bandit, whether it learns, and if not, why.

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


@store_.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A bandit that was started from a log and saved.")],
    bandit: Bandit,
    store: Store,
    reward_window: float | None = Option(
        None, help="Seconds in which a decision's reward may be reported; default 1800."
    ),
    default_reward: float | None = Option(
        None, help="The reward of a decision without one; default: the lower end of the range."
    ),
    shadow: bool = Option(
        False, "--shadow", help="Another system decides until this bandit goes live."
    ),
    holdout: float = Option(0.0, help="The share of decisions made at random."),
    measure_share: float | None = Option(
        None,
        help="Share of the budget for measuring what a shadow or a holdout earned; default 0.1.",
    ),
    measure_every: int | None = Option(
        None, help="Measured rounds between two such releases; default 1,000."
    ),
    json_: Json = False,
) -> None:
    """Move a bandit that was started from a log into a store: it keeps learning there, and only there.

    Model, ledger and claim move with it, and so do the counts of the log's users. A shadow or a
    holdout is charged on top, so the claim grows. Running the command again changes nothing. It
    needs access to the store, like all commands of this group: the file holds clean statistics.

    [dim]Example:[/dim]  dpbandit store import bandit.npz --bandit news --store sqlite:///bandits.db
    """
    asked = {"name": bandit, "default_reward": default_reward, "shadow": shadow, "holdout": holdout}
    asked |= {"measure_share": measure_share, "measure_every": measure_every}
    asked |= {} if reward_window is None else {"reward_window": reward_window}
    with _opened(store, create=True) as opened:
        from dpbandit.service.moving import move

        new, claim = move(opened, file, asked)
    if json_:
        print_json({"bandit": bandit, "new": new, "claim": claim})
        return
    say(f"{bandit}: {'moved' if new else 'was there already'}; {file} must not learn elsewhere")
    say(claim["words"])


@store_.command("backup")
def backup(
    store: Store,
    to: Annotated[Path, Option("--to", help="The copy's file; it must not exist yet.")],
    json_: Json = False,
) -> None:
    """Copy a SQLite store while it is in use. The copy holds rewards: protect it like them.

    [dim]Example:[/dim]  dpbandit store backup --store sqlite:///bandits.db --to copy.db
    """
    _needs_service()
    from dpbandit.service.backup import backup as copy

    size = copy(store, to)
    if json_:
        print_json({"copy": str(to), "bytes": size})
    else:
        say(f"copied {size:,} bytes; starting from this copy later means restoring an old one")


@store_.command("migrate")
def migrate(
    store: Store,
    check: bool = Option(
        False, "--check", help="Change nothing; exit status 1 if a migration is needed."
    ),
    json_: Json = False,
) -> None:
    """Migrate a store to this version's schema, or say whether that is needed. Services do so at
    start.

    [dim]Example:[/dim]  dpbandit store migrate --check --store sqlite:///bandits.db
    """
    _needs_service()
    from dpbandit.service.backup import versions

    there, ours = versions(store)
    if there > ours:
        raise OptionError(
            f"the store has schema version {there}, but this program knows versions up to {ours}: run "
            "the newer program that made it"
        )
    if not check and there < ours:
        with _opened(store):
            pass  # whoever opens it migrates it
    now = there if check else ours
    if json_:
        print_json({"version": now, "needed": ours, "was": there})
    else:
        done = "nothing to do" if there == ours else f"needs {ours}" if check else f"was {there}"
        say(f"schema version {now}: {done}")
    if check and there < ours:
        raise typer.Exit(1)


@store_.command("accept-restore")
def accept_restore(
    store: Store,
    bandit: str | None = Option(None, "--bandit", help="The bandit to decide about."),
    pay_again: bool = Option(
        False,
        "--pay-again",
        help="Keep learning from the old copy; the bandit's budget counts once more.",
    ),
    retire: bool = Option(False, "--retire", help="Keep ranking, but stop learning."),
    lost: bool = Option(
        False, "--lost", help="Count the budgets of bandits that the old copy lacks as spent."
    ),
    witness: Folder = None,
    json_: Json = False,
) -> None:
    """Decide about a store that was restored from an old copy.

    Releases made after the copy cannot be taken back. --retire ends learning. --pay-again keeps
    learning and counts the bandit's budget once more, in its own claim and under the cap.

    [dim]Examples:[/dim]

    dpbandit store accept-restore --store sqlite:///bandits.db --bandit shop --retire

    dpbandit store accept-restore --store sqlite:///bandits.db --lost
    """
    if (bandit is not None) != (pay_again != retire) or (bandit is None and not lost):
        raise OptionError("give --lost, or --bandit NAME with one of --retire and --pay-again")
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
    """Confirm that this store is the newest copy, for a learner on a new machine without a witness.

    [dim]Example:[/dim]  dpbandit store trust --store postgresql://app@db/bandits --bandit shop
    """
    with _opened(store) as opened:
        from dpbandit.service import restore

        _say({bandit: restore.trust(opened, _witness(opened, witness), bandit)}, json_)


@store_.command("resume")
def resume(store: Store, bandit: Bandit, json_: Json = False) -> None:
    """Resume learning after a failure whose cause was removed.

    [dim]Example:[/dim]  dpbandit store resume --store sqlite:///bandits.db --bandit shop
    """
    with _opened(store) as opened:
        from dpbandit.service import restore

        _say({bandit: restore.resume(opened, bandit)}, json_)


def _needs_service() -> None:
    if not extras.there("msgspec") or not extras.there("uvicorn"):
        raise OptionError(f"the service needs the extra 'service': {extras.pip_install('service')}")


@contextlib.contextmanager
def _opened(url: str, *, create: bool = False) -> Iterator[OpenStore]:
    """The store, closed at the end."""
    _needs_service()
    from dpbandit.service.store import Store as Open

    with contextlib.closing(Open(url, create=create)) as store:
        yield store


def _witness(store: OpenStore, folder: Path | None) -> Witness:
    from dpbandit.service.witness import Witness, default_place

    # Never made here: an empty witness would excuse anything.
    return Witness(folder or default_place(store.meta("store") or ""), create=False)
