"""What can be installed beside the library, and what each extra brings: the modules by which one knows that it is there."""

from __future__ import annotations

from importlib.util import find_spec

# As in pyproject.toml; a test compares them.
EXTRAS: dict[str, tuple[str, ...]] = {
    "lab": ("matplotlib", "pandas", "pyarrow", "rich", "sklearn", "typer"),
    "audit": ("dp_accounting",),
    "service": ("msgspec", "uvicorn", "uvloop", "httptools", "prometheus_client"),
    "postgres": ("psycopg",),
    "cluster": ("ray",),
    "gpu": ("cupy",),
    "bench": ("vowpalwabbit", "mabwiser", "contextualbandits", "river", "bayesianbandits"),
}
WHAT_FOR = {
    "lab": "comparisons, figures, this command line",
    "audit": "a second opinion on budgets",
    "service": "dpbandit serve",
    "postgres": "a PostgreSQL store",
    "cluster": "--cluster, on Ray",
    "gpu": "--device cuda",
    "bench": "peers in dpbandit bench speed",
}


def extra_of(module: str) -> str | None:
    """The extra that brings a module.

    >>> extra_of("pandas.core"), extra_of("nothing_of_ours")
    ('lab', None)
    """
    root = module.split(".")[0]
    return next((extra for extra, modules in EXTRAS.items() if root in modules), None)


def pip_install(extra: str) -> str:
    """The command that brings it."""
    return f"pip install 'dpbandit[{extra}]'"


def missing(extra: str) -> list[str]:
    """Modules of an extra that are not there; nothing is imported."""
    return [module for module in EXTRAS[extra] if not there(module)]


def there(module: str) -> bool:
    """Whether a module could be imported."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
