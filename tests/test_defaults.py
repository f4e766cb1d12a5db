"""One set of defaults: what is left out means the same in every function and every command."""

import inspect

import pytest
import typer.main

import dpbandit as dpb
from dpbandit import defaults
from dpbandit.cli import shared

NEEDED = inspect.Parameter.empty
FUNCTIONS = (
    "make",
    "run",
    "plan",
    "recommend",
    "affordable_epsilon",
    "protections",
    "sizing",
    "clipping",
    "verify",
    "audit",
    "fuzz",
    "warm_start",
    "replay",
)
# None: a fact that is not known, or one that is asked of what else was given. A small problem shows
# the mistakes that `verify` and `audit` look for sooner.
ALLOWED = {
    "epsilon": {NEEDED, None, defaults.EPSILON},
    "delta": {NEEDED, None, defaults.DELTA},
    "reward_range": {NEEDED, None, defaults.REWARD_RANGE},
    "horizon": {NEEDED, None, defaults.HORIZON},
    "dim": {NEEDED, None, defaults.DIM},
    "arms": {NEEDED, None, defaults.ARMS},
}
OWN = {
    ("verify", "horizon"): defaults.VERIFY_HORIZON,
    ("verify", "dim"): defaults.VERIFY_DIM,
    ("audit", "horizon"): defaults.AUDIT_HORIZON,
    ("audit", "dim"): defaults.AUDIT_DIM,
    ("run", "arms"): 1_000,  # the pool of the paper's simulation; `shown` is what a round offers
}


def commands():
    """Each command that asks for a budget or a size, with its defaults."""

    def walk(command, path):
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, [*path, name])
        yield " ".join(path), {p.name: NEEDED if p.required else p.default for p in command.params}

    return list(walk(typer.main.get_command(shared.app), []))


def functions():
    for name in FUNCTIONS:
        given = inspect.signature(getattr(dpb, name)).parameters.values()
        yield name, {one.name: one.default for one in given}


@pytest.mark.parametrize(("name", "given"), [*functions(), *commands()])
def test_what_is_left_out_means_the_same_everywhere(name, given):
    for option, allowed in ALLOWED.items():
        if option in given:
            own = OWN.get((name, option), NEEDED)
            assert given[option] in allowed | {own}, (name, option, given[option])


def test_every_function_that_takes_a_budget_is_looked_at():
    takers = {
        name
        for name in dpb.__all__
        if callable(found := getattr(dpb, name))
        and not isinstance(found, type)
        and "epsilon" in inspect.signature(found).parameters
    }
    assert takers <= set(FUNCTIONS)
    asked = {name for name, given in commands() if "epsilon" in given}
    assert asked == {"run", "verify", "audit", "claim", "plan", "evaluate", "warm-start"}
