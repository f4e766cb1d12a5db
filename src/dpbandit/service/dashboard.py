"""The dashboard's files, served to anybody: they are the same for every store and reveal nothing.

They get all data from the API, with the visitor's key. The page shows no reward rate except the
released earnings of a shadow or a holdout: any other rate would be a separate release
(docs/dashboard.md).
"""

from __future__ import annotations

import hashlib
from importlib.resources import files

from dpbandit.service.answers import Scope, Send

# Own files only, no inline code, no frames, no form that leaves the page; text never becomes
# markup.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for "
    "'script'; trusted-types 'none'"
)

SCRIPT = b"text/javascript; charset=utf-8"

_FILES = {
    "/": ("dashboard.html", b"text/html; charset=utf-8"),
    "/dashboard.css": ("dashboard.css", b"text/css; charset=utf-8"),
    "/dashboard.js": ("dashboard.js", SCRIPT),
    "/dashboard-cards.js": ("dashboard-cards.js", SCRIPT),
    "/dashboard-words.js": ("dashboard-words.js", SCRIPT),
    "/favicon.svg": ("favicon.svg", b"image/svg+xml"),
}


# Kept, but asked about each time: after an upgrade nobody runs an old page against a new API.
_HEADERS = (
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Dashboard:
    """The files in memory, each with its type and its tag."""

    def __init__(self) -> None:
        folder = files("dpbandit.service") / "static"
        self._pages = {}
        for path, (name, kind) in _FILES.items():
            body = (folder / name).read_bytes()
            tag = b'"%s"' % hashlib.sha256(body).hexdigest()[:20].encode()
            self._pages[path] = body, kind, tag

    def has(self, scope: Scope) -> bool:
        return scope["path"] in self._pages and scope["method"] in ("GET", "HEAD")

    async def answer(self, scope: Scope, send: Send) -> None:
        """The file, or 304 for whoever has it."""
        body, kind, tag = self._pages[scope["path"]]
        head = [(b"content-type", kind), (b"etag", tag), *_HEADERS]
        unchanged = any(
            name == b"if-none-match" and tag in value for name, value in scope["headers"]
        )
        if not unchanged:
            head.append((b"content-length", b"%d" % len(body)))
        shown = b"" if unchanged or scope["method"] == "HEAD" else body
        status = 304 if unchanged else 200
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": shown})
