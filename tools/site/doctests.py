"""Shows the examples in docstrings as code: without this `>>>` would become a quotation within quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

# `>>> …` and what follows it, up to an empty line.
EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)+", re.M)


class Doctests(griffe.Extension):
    """Puts fences around every example."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )
