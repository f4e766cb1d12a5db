"""A bandit that was started from a log moves into a store: it learns on there, and nowhere else.

Model, clean state, ledger and claim go as they are. What the log counted of users goes into the
store's table of people, under keyed names of what the log kept of them, so that a user is known by
whoever serves them. A note beside the file says where it went: a second service that learned on from
it would count the same users anew, and spend their budget a second time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dpbandit.algorithms import registry
from dpbandit.algorithms.phase import BLOCKS
from dpbandit.bandit import Bandit
from dpbandit.errors import CapError, DpbanditError, OptionError, SaveError
from dpbandit.files import moved_to, unpack
from dpbandit.logs.record import People
from dpbandit.release.local import NEVER
from dpbandit.saving import note_beside
from dpbandit.service import blueprint, measure
from dpbandit.service.records import person_of_log
from dpbandit.service.store import Store

# What a claim promises, apart from its words.
_PROMISE = ("unit", "notion", "epsilon", "delta", "mu", "status", "noise")


def move(store: Store, path: Path, request: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Move the bandit that was saved at `path` into the store; whether it was not there yet, and its
    claim. The same again changes nothing.

    `request` holds its name, and what else only the service asks: `reward_window`, `shadow`, ….

    Raises
    ------
    OptionError
        If it cannot be served, has another name here or another bandit has this one, or moved into
        another store.
    CapError
        If its claim does not fit beside the others.
    """
    with _alone(path):
        return _move(store, path, request)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Of several on this machine that move one file, one after the other: none takes back a note
    that another relies on."""
    try:
        file = path.open("rb")
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from None
    with file:
        yield


def _move(store: Store, path: Path, request: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    here = store.meta("store") or ""
    noted = moved_to(path)
    if noted is not None and noted["store"] != here:
        raise OptionError(
            f"{path} moved into another store, as {noted['bandit']!r}: two that learn on from one file "
            "would count its users anew and spend their budget twice. Only if that store never got it, "
            f"remove {note_beside(path).name}"
        )
    key = bytes.fromhex(store.meta("person_key") or "")
    try:
        bandit = _read(path)
        config = _config(bandit, request)
        text = blueprint.canonical(config)
        people = _people(bandit, key)
        bandit.people = People.nobody()  # the store counts them from here on
        records = blueprint.records(bandit, config)
    except DpbanditError:
        raise
    except Exception as error:  # its words may quote what nobody should see
        raise SaveError(
            f"{path} is damaged, or was changed since it was saved ({type(error).__name__})"
        ) from None
    if noted is None:  # before it is there: what crashes in between is done again
        _note(path, here, store.name_of(bandit.identity) or config["name"])
    try:
        new = store.create(
            config,
            text=text,
            key="",
            people=people,
            start={"fingerprint": bandit.ledger.fingerprint, "charged": bandit.ledger.releases},
            **records,
        )
    except (OptionError, CapError):
        # It was refused, so it is not there. After any other error nobody knows whether the store
        # did not get it or did not say so: the note stays, and the same command again is safe.
        if noted is None and store.name_of(bandit.identity) is None:
            note_beside(path).unlink()
        raise
    return new, records["claim"]


def _read(path: Path) -> Bandit:
    """The bandit, or an error unless it is of the kind that moves."""
    bandit = unpack(path.read_bytes(), path)
    if bandit.source.kind != "real":
        raise OptionError(
            f"{path} was made with a seed, which means simulated noise and protects nobody: start it "
            "from the log without one"
        )
    if bandit.log is None:
        raise OptionError(f"{path} was not started from a log: make it in the service")
    if bandit.rounds or bandit.counters:
        raise OptionError(
            f"{path} has learned {bandit.rounds:,} rounds since its log: move it before it learns online"
        )
    if bandit.claim.status != "proven":
        raise OptionError(f"{path} has no proven claim (status: {bandit.claim.status})")
    return bandit


def _config(bandit: Bandit, request: dict[str, Any]) -> dict[str, Any]:
    """What the service would have made it from, and what it has learned of."""
    given = bandit.get_params()
    encoder = given.pop("encoder", None)
    fields: dict[str, Any] = {
        name: given.pop(name)
        for name in ("dim", "epsilon", "delta", "reward_range", "horizon", "unit")
    }
    name = given.pop("name")
    if given.pop("holdout"):
        raise OptionError(
            "this bandit was made with a holdout of its own, whose rounds a store does not know: make "
            "it without, and give --holdout here"
        )
    options = {
        option: value.tolist() if isinstance(value, np.ndarray) else value
        for option, value in given.items()
    }
    told = blueprint.Request(
        algorithm=name,
        encoder=None if encoder is None else encoder.to_record(),
        options=options,
        **fields,
        **request,
    )
    # As it was made: the service's own default is another, and another claim.
    if "local" in registry.find(name).own_options and "local" not in options:
        default = NEVER if bandit.options.protects.needs_user else BLOCKS
        told.options["local"] = default
    config = blueprint.normalised(told, max_dim=bandit.dim)
    config["log"] = None if bandit.log is None else bandit.log.to_dict()
    made = blueprint.made(config)
    if any(getattr(made.claim, part) != getattr(bandit.claim, part) for part in _PROMISE):
        raise OptionError("the options in this file do not make its claim: the file was changed")
    if measure.wanted(config):
        # The bandit has its whole budget already: what is told besides is paid on top.
        config["epsilon"] = measure.paid_on_top(bandit.claim, config["measure_share"])
        largest = blueprint.made_to_measure(config).claim
        if largest.mu is not None and largest.mu < (bandit.claim.mu or math.inf):
            raise OptionError("measure_share is too small for this claim: give a larger one")
    return config


def _people(bandit: Bandit, key: bytes) -> dict[bytes, int]:
    hashes, counts = bandit.people.hashes, bandit.people.counts
    if hashes.dtype.kind != "u" or counts.dtype.kind != "i" or (counts < 0).any():
        raise SaveError("the log's counts of users differ from the saved ones")
    found = zip(hashes.tolist(), counts.tolist(), strict=True)
    return {person_of_log(hashed, key): count for hashed, count in found if count}


def _note(path: Path, store: str, name: str) -> None:
    """For good, before anything else happens. It is there as a whole or not at all."""
    note = note_beside(path)
    part = note.with_name(f"{note.name}.{secrets.token_hex(8)}")
    try:
        with part.open("x") as file:
            file.write(json.dumps({"store": store, "bandit": name}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(part, note)  # unlike a rename it replaces nothing
        folder = os.open(note.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except FileExistsError:
        raise OptionError(f"{path} is being moved by another process just now") from None
    except OSError as error:
        raise OptionError(
            f"{note} cannot be written ({error.strerror}): it says that the bandit learns in a service "
            "from now on, so keep the file where that can be said"
        ) from None
    finally:
        part.unlink(missing_ok=True)
