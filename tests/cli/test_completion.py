"""Completion, by the protocol that bash, zsh and fish speak: names of algorithms and worlds, and nothing heavy imported."""

import os
import subprocess
import sys

import pytest

from dpbandit.algorithms import registry
from dpbandit.cli import compare, names

HEAVY = ("numpy", "scipy", "opendp", "pandas", "matplotlib", "pyarrow")


def complete(shell, words):
    """What a shell is offered for the last of these words; fails if anything heavy was imported."""
    env = {
        **os.environ,
        "_DPBANDIT_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    env |= {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_TYPER_COMPLETE_ARGS": words}
    code = f"""
import sys
from dpbandit.cli import main
try:
    main()
finally:
    heavy = [name for name in {HEAVY} if name in sys.modules]
    if heavy:
        print("heavy:", heavy)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False
    )
    assert "heavy" not in ran.stdout, ran.stdout
    return ran.stdout


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("dpbandit run linucb any", ["anytime", "anytime-joint"]),
        ("dpbandit run --world dr", ["drifting"]),
        ("dpbandit bench privacy-cost --worlds lastfm", ["lastfm-pca", "lastfm-svd"]),
    ],
)
def test_bash(words, wanted):
    assert complete("bash", words).split() == wanted


def test_zsh_and_fish_get_a_description_of_one_line():
    assert '"anytime":"' in complete("zsh", "dpbandit run any")
    lines = complete("fish", "dpbandit run ").splitlines()
    assert [line.split("\t")[0] for line in lines] == list(registry.ALGORITHMS)
    assert all(line.split("\t")[1] for line in lines)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_calls_dpbandit(shell):
    code = "import sys; sys.argv = ['dpbandit', '--show-completion', sys.argv[1]]; from dpbandit.cli import main; main()"
    env = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", code, shell], capture_output=True, text=True, env=env, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert f"_DPBANDIT_COMPLETE=complete_{shell}" in ran.stdout


def test_names_are_those_of_the_registry():
    read = from_source()
    built_in = {n: a for n, a in registry.algorithms().items() if not a.registered_by_user}
    assert list(read) == list(built_in)
    for name, algorithm in built_in.items():
        assert read[name] == (algorithm.description, algorithm.claim, algorithm.reference)
    assert set(names.WORLDS) == set(compare.WORLDS)


def from_source():
    """The list as it is read where the registry has not been imported."""
    registry_ = sys.modules.pop(names.REGISTRY)
    try:
        return names.algorithms()
    finally:
        sys.modules[names.REGISTRY] = registry_


def test_an_algorithm_that_was_registered_is_listed_too(dpbandit_):
    registry.register("mine", lambda **_: None, description="my own")
    assert "my own" in dpbandit_("algorithms").out
