"""Everything `dpbandit serve` can be told, with its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Roles = Literal["ranker", "learner", "all"]


@dataclass(frozen=True)
class Settings:
    """Limits are per process. Seconds throughout."""

    store: str
    role: Roles = "all"
    host: str = "127.0.0.1"
    port: int = 8080
    json: bool = False  # log lines, and one on standard output when the service listens
    # requests
    max_body: int = 4 << 20
    max_arms: int = 1_000
    max_dim: int = 512
    max_rewards: int = 1_000
    max_waiting: int = 20_000
    max_connections: int = 10_000
    body_seconds: float = 10.0
    write_seconds: float = 30.0
    idle_seconds: float = 75.0
    shutdown_seconds: float = 20.0
    allow_unproven: bool = False
    # learning
    witness: Path | None = None
    lease_seconds: float = 10.0
    release_seconds: float = 0.25
    batch: int = 512
    keep_transcript: bool = False
    retain_rewards: float = 3_600.0
    retain_decisions: float = 7 * 86_400.0
    retain_access_log: float = 90 * 86_400.0
    bandits: tuple[str, ...] = ()  # learn only these; all if empty
