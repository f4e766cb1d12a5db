"""Keys: shown once, stored as a hash, compared in constant time, revocable.

A key is `dpb_<id>_<secret>`. The secret has 256 random bits, so a plain hash of it cannot be
searched.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Literal

from dpbandit.errors import OptionError
from dpbandit.service.database import Connection

Role = Literal["rank", "reward", "app", "admin"]
ROLES: tuple[Role, ...] = ("rank", "reward", "app", "admin")  # an app ranks and reports
KEY = re.compile(rb"dpb_([0-9a-f]{12})_([A-Za-z0-9]{43})\Z")


def _hash(secret: bytes) -> bytes:
    return hashlib.sha256(b"dpbandit key|" + secret).digest()


def create(connection: Connection, role: str, *, label: str = "") -> str:
    """A new key, and the only time it is seen."""
    if role not in ROLES:
        raise OptionError(f"a role is one of {', '.join(ROLES)}, not {role!r}")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    identity, secret = secrets.token_hex(6), "".join(secrets.choice(letters) for _ in range(43))
    with connection.write():
        row = {"role": role, "label": label, "created_at": connection.now()}
        connection.add("keys", id=identity, hash=_hash(secret.encode()), **row)
    return f"dpb_{identity}_{secret}"


def revoke(connection: Connection, identity: str) -> bool:
    """End a key, by its id or by the key itself. False if there is no such key."""
    found = KEY.match(identity.encode())
    identity = found[1].decode() if found else identity.removeprefix("dpb_")
    with connection.write():
        ended = connection.run(
            "UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL",
            (connection.now(), identity),
        )
    return ended > 0


class KeyRing:
    """The keys in force, as a ranker remembers them for a moment."""

    def __init__(self) -> None:
        self._keys: dict[bytes, tuple[bytes, str]] = {}

    def replace(self, rows: list[tuple[str, bytes, str]]) -> None:
        self._keys = {identity.encode(): (bytes(digest), role) for identity, digest, role in rows}

    def well_formed(self, authorization: bytes) -> bool:
        """Whether this could be a key at all."""
        return authorization[:7].lower() == b"bearer " and bool(KEY.match(authorization[7:]))

    def remembers(self, authorization: bytes) -> bool:
        """Whether a key of this id is remembered: whether it is worth asking the store again."""
        found = KEY.match(authorization[7:])
        return found is not None and found[1] in self._keys

    def check(self, authorization: bytes) -> tuple[str, str] | None:
        """(id, role) for `Bearer dpb_…`, or None."""
        if authorization[:7].lower() != b"bearer ":
            return None
        found = KEY.match(authorization[7:])
        if found is None:
            return None
        identity, secret = found.groups()
        digest, role = self._keys.get(identity, (b"\0" * 32, ""))
        if not hmac.compare_digest(digest, _hash(secret)):
            return None
        return identity.decode(), role
