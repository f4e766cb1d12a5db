"""The extras of the library, with the modules by which to recognise each."""

from __future__ import annotations

from importlib.util import find_spec

# As in pyproject.toml; a test compares them.
EXTRAS: dict[str, tuple[str, ...]] = {
    "lab": ("matplotlib", "pandas", "pyarrow", "sklearn"),
    "audit": ("dp_accounting",),
    "service": ("msgspec", "uvicorn", "uvloop", "httptools"),
    "postgres": ("psycopg",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "cluster": ("ray",),
    "gpu": ("cupy",),
    "adapters": ("coba", "river", "gymnasium"),
    "bench": ("vowpalwabbit", "mabwiser", "contextualbandits", "river", "bayesianbandits"),
    "note": ("typst",),
}
ESSENTIAL = ("numpy", "scipy", "opendp", "rich", "typer")
WHAT_FOR = {
    "lab": "comparisons, figures, Parquet, frames",
    "audit": "a second opinion on budgets",
    "service": "dpbandit serve",
    "postgres": "a PostgreSQL store",
    "otel": "serve --otel",
    "cluster": "--cluster, on Ray",
    "gpu": "--device cuda",
    "adapters": "coba, river, Gymnasium",
    "bench": "peers in dpbandit bench speed",
    "note": "make note, the technical note",
}


def what_brings(module: str) -> str | None:
    """The command that installs a module; None if no extra has it.

    >>> what_brings("pandas.core"), what_brings("opendp"), what_brings("nothing_of_ours")
    ("pip install 'dpbandit[lab]'", 'pip install dpbandit', None)
    """
    root = module.split(".")[0]
    if root in ESSENTIAL:
        return "pip install dpbandit"
    for extra, modules in EXTRAS.items():
        if root in {one.split(".")[0] for one in modules}:
            return pip_install(extra)
    return None


def pip_install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'dpbandit[{extra}]'"


def missing(extra: str) -> list[str]:
    """Missing modules of an extra; nothing is imported."""
    return [module for module in EXTRAS[extra] if not there(module)]


def there(module: str) -> bool:
    """Whether a module could be imported."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
