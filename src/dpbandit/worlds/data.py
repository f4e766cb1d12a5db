"""Where data files are: $DPBANDIT_DATA, then the user cache, then an installed package that carries them (Open Bandit
only), then (LastFM only) a download from GroupLens.

Every file is checked against its sha256 before it is used. No data set is part of this package.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.request
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

TIMEOUT = 10.0  # seconds without an answer; the file itself is 2.6 MB


class DataMissing(FileNotFoundError):  # noqa: N818 - reads as what it says
    """A missing data file; the message says where to get it and where to put it."""


class Source(NamedTuple):
    """One data set: its file inside a data folder, its checksum, where it comes from, and on what terms."""

    title: str
    file: str
    sha256: str
    url: str | None
    origin: str
    terms: str
    # A zip made anew from the same files is as good, and so is a package with them in this folder of its own.
    members: Mapping[str, str] = MappingProxyType({})
    package: str | None = None
    inside: str = ""


SOURCES: Mapping[str, Source] = {
    "lastfm": Source(
        title="LastFM (HetRec 2011, 2k users)",
        file="lastfm/hetrec2011-lastfm-2k.zip",
        sha256="6738f48195667ff03caaab4d32ca9a3133d8cc026b7c3cdaf6ce1010e913c59c",
        url="https://files.grouplens.org/datasets/hetrec2011/hetrec2011-lastfm-2k.zip",
        origin="https://files.grouplens.org/datasets/hetrec2011/hetrec2011-lastfm-2k.zip",
        terms="non-commercial use only; cite Last.fm and I. Cantador, P. Brusilovsky, T. Kuflik, HetRec 2011 (RecSys 2011)",
    ),
    "obd": Source(
        title="Open Bandit Dataset, small sample",
        file="obd/obd-small.zip",
        sha256="f19c4496ce0e7e0c084dc2b632c29a5b6e1f34f115aa4cf2309fbef9da643478",
        url=None,
        origin="the Open Bandit Pipeline, version 0.4.1 (pip install --no-deps obp==0.4.1 is enough; or zip its folder obp/dataset/obd as obd/)",
        terms="ZOZO, Inc.; the sample ships with the Open Bandit Pipeline under Apache-2.0; cite Saito et al., arXiv:2008.07146",
        members={
            "obd/random/all/all.csv": "7168295b6e0a9eabcf3392320a5dd434e542b68e705d5cd9491499af589812f1",
            "obd/random/all/item_context.csv": "eba04cc23d5f130a93ff174c5392986882b94c3839433cb8143870eaa6221358",
            "obd/random/men/men.csv": "ede6d08c6877f99cd3770f7d09e26c738e6aa6de4445ccccfb1356ba5d06b1eb",
            "obd/random/men/item_context.csv": "6d855c2b7e917d0448d71bbe62c023147495882c0fdc8c41e86fef86abf9fe09",
            "obd/random/women/women.csv": "e65f3bd3beb17664fa69cc129bf7bf852a775f8ffa630506e505fc905315bb34",
            "obd/random/women/item_context.csv": "b1ca4905f97703d196004f2ad4552c1e90c2afad8b50688d333b0d2dc0b33147",
            "obd/bts/all/all.csv": "0ad874e4dbf6902f0845dd478ad8dde5ef6903583d3ffaace78411bdad064106",
            "obd/bts/all/item_context.csv": "5d4359ba1cfa3ae88f0f1bae66bd633859fe6323817183632ee57b83539d9153",
            "obd/bts/men/men.csv": "db6d1f7ed2d591ba521533e45286d4c1fba7fe57a8ad2e80342210335f43c527",
            "obd/bts/men/item_context.csv": "3b411ed6b0471316321a6b93f4f756bb25888eac6218cd71d0b603d41d85732d",
            "obd/bts/women/women.csv": "e5d1b49a39b608585a2f3014a3f54970430cd37a495c1b73fceb85cdf428a5b8",
            "obd/bts/women/item_context.csv": "a56295bad066a558eb783055afd9279f5f4e209a4776eafc22151c53f0ac89d4",
        },
        package="obp",
        inside="dataset",
    ),
}


def find(kind: str) -> Path:
    """The checked data of "lastfm" or "obd": a zip, or the folder of a package that carries them.

    LastFM is downloaded into the user cache if it is nowhere else.

    Raises DataMissing when there is none, and ValueError when the file found is not the one it should be.
    """
    if kind not in SOURCES:
        raise ValueError(f"there is no data set {kind!r}: use one of {sorted(SOURCES)}")
    source = SOURCES[kind]
    for path in _places(source):
        if path.exists():
            if not _intact(path, source):
                raise ValueError(
                    f"{path} is not the released {source.title}: its sha256 should be {source.sha256}. "
                    f"Delete it and get it again from {source.origin}"
                )
            return path
    tried = "there is no automatic download"
    if source.url is not None:
        target = cache_folder() / source.file
        try:
            download(source.url, target, source.sha256)
        except (OSError, http.client.HTTPException, ValueError) as error:
            tried = f"a download from {source.url} failed ({error})"
        else:
            return target
    raise DataMissing(_missing(source, tried))


def available() -> dict[str, Path | None]:
    """Each data set's file, or None where it is missing or damaged. Never downloads.

    >>> sorted(available())
    ['lastfm', 'obd']
    """
    found: dict[str, Path | None] = {}
    for kind, source in SOURCES.items():
        first = next((path for path in _places(source) if path.exists()), None)
        found[kind] = first if first is not None and _intact(first, source) else None
    return found


def cache_folder() -> Path:
    """The user's cache: $XDG_CACHE_HOME/dpbandit, or ~/.cache/dpbandit."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpbandit"


def download(url: str, target: Path, sha256: str) -> None:
    """Fetch a file; it appears at `target` whole and checked, or not at all."""
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        content = answer.read()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError("the download's sha256 differs from the released file's")
    write(target, content)


def write(target: Path, content: bytes) -> None:
    """Write a file in one step: readers see the old one or the new one, even when two processes
    write at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _given_folder() -> Path | None:
    given = os.environ.get("DPBANDIT_DATA")
    return Path(given).expanduser() if given else None


def member(path: Path, name: str) -> bytes:
    """One file of what `find` found."""
    if path.is_dir():
        return (path / name).read_bytes()
    with zipfile.ZipFile(path) as archive:
        return archive.read(name)


def _places(source: Source) -> list[Path]:
    folders = (_given_folder(), cache_folder())
    found = [folder / source.file for folder in folders if folder is not None]
    package = None if source.package is None else find_spec(source.package)
    if package is not None and package.origin is not None:
        folder = Path(package.origin).parent / source.inside
        if all((folder / name).is_file() for name in source.members):
            found.append(folder)
    return found


def _intact(path: Path, source: Source) -> bool:
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == source.sha256:
        return True
    try:
        sums = [hashlib.sha256(member(path, name)).hexdigest() for name in source.members]
    except (zipfile.BadZipFile, KeyError, OSError):
        return False
    return bool(sums) and sums == list(source.members.values())


def _missing(source: Source, tried: str) -> str:
    given = _given_folder()
    looked = f"$DPBANDIT_DATA ({'not set' if given is None else given}) nor in the user cache ({cache_folder()})"
    return (
        f"the data set {source.title} is missing: {source.file} is neither in {looked}, and {tried}. "
        f"Get it from {source.origin}, and put it at {cache_folder() / source.file}, "
        f"or set DPBANDIT_DATA to a folder that holds {source.file}. Terms: {source.terms}."
    )
