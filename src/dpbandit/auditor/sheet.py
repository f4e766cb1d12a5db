"""The claim sheet: one page that says what is promised, for a privacy reviewer to sign."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpbandit import __version__
from dpbandit.algorithms import registry
from dpbandit.bandit import Bandit
from dpbandit.privacy.unit import to_you

NOTIONS = {
    "pure": "pure ε-differential privacy",
    "approximate": "(ε, δ)-differential privacy",
    "parallel": "(ε, δ)-differential privacy by parallel composition: a reward pays pure ε once, or "
    "Gaussian noise of the same (ε, δ), never both",
    "gdp": "μ-Gaussian differential privacy; it implies the pair above, and others (smaller δ, "
    "larger ε)",
    "joint": "joint differential privacy: contexts are protected too",
    "none": "no notion of privacy",
}
STATUS = {
    "proven": "PROVEN: derived in the proofs that come with dpbandit (`dpbandit proofs` prints them), "
    "checked by `dpbandit verify` and attacked by `dpbandit audit`",
    "as-published": "AS PUBLISHED, NOT PROVEN: do not rely on it",
    "none": "NO CLAIM: do not use it to protect anyone",
}

SOURCES = {
    "real": ": exact samplers of OpenDP, safe against low-bit attacks",
    "simulation": ": NOT for production",
    "none": "",
}
PAST_REWARDS = "- features made from people's past rewards: they count as public contexts"
SIGNATURE = (
    "Reviewed by: ______________________   Date: ______________   Signature: ______________________"
)


def proofs() -> str:
    """The proofs that claims cite, as Markdown, from the wheel or the clone.

    >>> proofs().splitlines()[0][0]
    '#'
    """
    package = Path(__file__).parents[1]
    places = (package / "proofs.md", package.parents[1] / "docs" / "privacy.md")
    return next(place for place in places if place.is_file()).read_text(encoding="utf-8")


def claim_sheet(name: str, **options: Any) -> str:
    """The sheet as Markdown, for the bandit that these options would make.

    >>> "PROVEN" in claim_sheet("tree-gauss", dim=10, epsilon=1.0, delta=1e-6, horizon=10_000)
    True
    """
    bandit: Bandit = registry.construct(name, options)
    claim, given = bandit.claim, bandit.options
    low, high = given.reward_range
    described = registry.find(name).description
    flags = " ".join(
        [f"--epsilon {given.epsilon or 1:g}", f"--dim {given.dim}"]
        + ([f"--delta {given.delta:g}"] if given.delta else [])
        + ([f"--noise {given.noise}"] if given.noise else [])
        + given.protects.flags
        + (["--unknown-horizon"] if given.horizon is None else [])
        + (["--pan-private"] if given.pan_private else [])
    )
    memory = [] if given.pan_private else ["- the memory of the learner: trusted side only"]
    nothing = claim.status == "none"
    horizon = "unknown" if nothing else "unknown: the promise holds however long it runs"
    if given.horizon is not None:
        horizon = f"{given.horizon:,} rewards; learning stops there"
    joint = claim.notion == "joint"
    clipped = f"clipped to [{low:g}, {high:g}]" if bandit.design.clips else "not clipped"
    uncovered = (
        "- a log of which arm was shown to whom, and when: trusted side only"
        if joint
        else "- contexts, arm features, which arm was shown, and when: they are public"
    )
    yours = to_you(claim.unit)
    mu = "" if claim.mu is None else f", μ = {claim.mu:.6g}"
    promise = (
        "nothing is promised" if nothing else f"ε = {claim.epsilon:g}, δ = {claim.delta:g}{mu}"
    )
    lines = [
        f"# Claim sheet: {name}",
        "",
        f"dpbandit {__version__}. {described[0].upper() + described[1:]}. "
        f"Source: {registry.find(name).reference}.",
        "",
        "| | |",
        "|---|---|",
        f"| Promise | {promise} |",
        f"| Notion | {NOTIONS[claim.notion]} |",
        f"| Status | {STATUS[claim.status]} |",
        f"| Who is protected | {'nobody' if nothing else claim.unit} |",
        *([f"| In plain words | {yours} |"] if yours and not nothing else []),
        f"| Noise | {claim.noise}{SOURCES[claim.noise]} |",
        f"| Rewards | {clipped} |",
        f"| Contexts | norm ≤ {given.max_norm:g}, {given.dim} features, "
        f"{'private' if joint else 'public'} |",
        f"| Horizon | {horizon} |",
        "",
        "## It rests on",
        "",
        *(f"- {line}" for line in claim.assumptions),
        "",
        "## It does not cover",
        "",
        uncovered,
        *([] if joint else [PAST_REWARDS]),
        "- the file that `save` writes: trusted side only",
        *memory,
        "- other bandits that learn from the same people: budgets add up",
        "- rewards that a person reveals in another way",
        "",
        "## How to check it",
        "",
        "```console",
        f"$ dpbandit verify {name} {flags}",
        f"$ dpbandit audit {name} {flags}",
        "```",
        "",
        "Both check fewer rounds than a service sees; `--horizon` sets how many.",
        *([] if nothing else ["", SIGNATURE]),
    ]
    return "\n".join(lines)
