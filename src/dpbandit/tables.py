"""Tables of parts by name. A missing part, or one that does not match its name, is refused by
name."""

from __future__ import annotations

from typing import Protocol, TypeVar

from dpbandit.errors import OptionError, nearest


class Named(Protocol):
    """A part that knows its name."""

    @property
    def name(self) -> str:
        """By which engines, files and users call it."""


Part = TypeVar("Part", bound=Named)


def find_in(table: dict[str, Part], wanted: Part | str, kind: type[Part], what: str) -> Part:
    """The part of this name, or the part itself, which must then be the one in the table.

    `kind` is what a part must be: a bare word or number in a table is none. `what` is how a part is
    called in words.
    """
    word = wanted.name if isinstance(wanted, kind) else wanted
    if not isinstance(word, str) or word not in table:
        raise OptionError(
            f"no {what} is called {word!r}: {nearest(str(word), table)}. One of your own is added "
            "first, by `add`, in every process that uses it"
        )
    found = table[word]
    if not isinstance(found, kind) or found.name != word:
        raise OptionError(f"{found!r} stands under {word!r}, and is no {what} of that name")
    if isinstance(wanted, kind) and wanted is not found:
        raise OptionError(
            f"another {what} is called {word!r}: give yours a name of its own, and add it"
        )
    return found


def add_to(
    table: dict[str, Part],
    part: Part,
    kind: type[Part],
    what: str,
    *,
    ours: frozenset[str],
    replace: bool,
) -> Part:
    """Put a part into a table under its name; those that come with the library stay."""
    if not isinstance(part, kind):
        raise OptionError(f"{part!r} is no {what}: it must be an object of a class of {kind!r}")
    name = part.name
    if not isinstance(name, str) or not name:
        raise OptionError(f"a {what} needs a name, not {name!r}")
    if name in ours or (name in table and not replace):
        raise OptionError(f"a {what} called {name!r} exists: choose another name")
    table[name] = part
    return part
