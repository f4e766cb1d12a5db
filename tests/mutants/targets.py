"""Which Python is mutated: whole rooms by default, and every exception with its reason.

Names are those of modules below `dpbandit` and of functions in them. What is named here and is no
longer there is an error: then say what it is called now.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import operators
from operators import Mutant

PACKAGE = "dpbandit"
# Rooms (with all modules below them) and modules.
COVERED = (
    "privacy",
    "release",
    "learners",
    "algorithms",
    "reference",
    "learning",
    "state",
    "bandit",
    "design",
    "model",
    "engine",
    "evaluate.release",
    "evaluate.tally",
    "service.measure",
    "service.batch",
)
# Modules below those that are left out.
LEFT_OUT = {
    "reference.random": "seeded noise, which protects nobody; its bits are compared with the core's",
    "reference.worlds": "draws simulated worlds: rewards and contexts that are nobody's",
    "learners.bank": "what was released, kept under memories that compete",
    "learners.prior": "the whitener and the prior: functions of contexts and of what was released",
    "algorithms.bonus": "how far to explore: public numbers, computed after the noise",
    "privacy.noises.check": "tells authors of noises of their mistakes; is a judge itself",
    "release.toeplitz_table": "fitted numbers: what they cost is computed from them, whatever they are",
}
# Functions that are left out, in covered modules.
SPARED = {
    "privacy.claim:Claim.brief": "words",
    "privacy.unit:to_you": "words",
    "release.local:LocalPhase.words": "words",
    "privacy.claim:Claim.to_dict": "words for JSON",
    "privacy.ledger:Ledger.table": "for reading; decides nothing",
    "privacy.sensitivity:estimate_bounds": "a guess about public contexts, for `dgs-published` alone",
    "privacy.sensitivity:smallest_eigenvalue_bound": "Lemma 1 as published: not proven, no claim rests on it",
    "privacy.sensitivity:lemma1": "Lemma 1 as published: not proven, no claim rests on it",
    "learners.filter:Filter": "a Kalman filter over what was released",
    "learners.scale:Scale.learn": "what was released says how rewards vary",
    "learners.scale:Scale._conclude": "what was released says how rewards vary",
    "learners.scale:Scale._is_sudden": "what was released says that something happened",
    "learners.scale:Scale.window": "of what was released, and of contexts",
    "learners.scale:_cut_off": "a law of Gaussian residuals",
    "learners.scale:_of_gaussians": "a law of Gaussian residuals",
    "learners.filter:FilterLearner._conclude": "reads the filter",
    "learners.filter:FilterLearner._join": "reads the bank",
    "learners.filter:FilterLearner._average": "weighs priors by what was released",
    "learners.filter:FilterLearner._forget_what_play_teaches": "how far to explore",
    "learners.filter:FilterLearner._reward_variance": "what was released says how rewards vary",
    "learners.filter:FilterLearner._refresh_prior": "public numbers, and what was released",
    "learners.filter:FilterLearner._note_rate": "what was released says how often clicks come",
    "learners.filter:FilterLearner._refresh_when_due": "when the whitener follows the contexts",
    "learners.batches:most_rate": "the index: what was released, and how far to explore",
    "learners.batches:bound_at": "the index: what was released, and how far to explore",
    "learners.batches:upper": "the index: what was released, and how far to explore",
    "algorithms.anytime_joint:noise_of_person": "a ratio for reading; claims are made of the design",
    "algorithms.anytime:not_plain": "words on what a GPU cannot play",
    "bandit:Bandit.memory": "which memory acts: of what was released, for reading",
    "algorithms.private_linucb:published_design": "as published: nothing is proven",
    "algorithms.private_linucb:published_multipliers": "as published: nothing is proven",
    "algorithms.dgs:_on_increments": "as published: nothing is proven",
    "algorithms.random:design": "no reward is looked at",
    "learners.pair:Directions": "a Kalman filter over what was released",
    "learners.pair:traceless": "what is made of released matrices",
    "learners.pair:of_trace_one": "what is made of released matrices",
    "learners.pair:clear_of_noise": "what is made of released matrices",
    "learners.pair:own_design": "what is made of released matrices",
    "learners.pair:PairLearner.matrix": "how far to explore",
    "learners.pair:PairLearner._learn_moments": "a Kalman filter over what was released",
    "learners.pair:PairLearner._conclude": "reads the filters",
    "learners.pair:PairLearner._coefficient": "reads the filters",
    "learners.pair:PairLearner._design": "reads the filters",
    "learners.pair:PairLearner._average": "reads the filters",
    "learners.pair:PairLearner._prior": "public numbers",
    "algorithms.joint:radius": "how far to explore: public numbers, computed after the noise",
    "reference.loops:play": "plays simulated worlds: rewards that are nobody's",
    "algorithms.registry:make": "makes; `construct` is mutated",
    "algorithms.registry:warn_of_large_delta": "a warning",
    "algorithms.registry:algorithms": "a copy of a table of words",
    "bandit:Bandit.get_params": "what it was made with",
    "bandit:_short": "words",
    "engine:core_status": "words",
    "engine:new_world": "simulated worlds",
    "learning:say_how_many": "words on an error",
    "service.measure:estimates": "means and intervals, of what was released",
    "service.measure:_compared": "means and intervals, of what was released",
    "service.measure:_mean": "means and intervals, of what was released",
    "service.measure:_interval": "means and intervals, of what was released",
}


def sources() -> dict[str, str]:
    """The source of every covered module, by its name below the package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"{PACKAGE} is not importable")
    root = Path(spec.origin).parent
    found: dict[str, str] = {}
    for name in COVERED:
        path = root.joinpath(*name.split("."))
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        if not files or not all(file.is_file() for file in files):
            raise LookupError(
                f"tests/mutants/targets.py covers {PACKAGE}.{name}, which is not there: say in "
                "COVERED where its functions are now"
            )
        for file in files:
            parts = file.relative_to(root).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[module] = file.read_text(encoding="utf-8")
    for module, reason in LEFT_OUT.items():
        if found.pop(module, None) is None:
            raise LookupError(
                f"tests/mutants/targets.py leaves out {PACKAGE}.{module} ({reason}), which is not "
                "there: say in LEFT_OUT what it is called now, or take it out"
            )
    for name in SPARED:
        module, _, function = name.partition(":")
        known = operators.functions_of(found.get(module, ""))
        if not any(each == function or each.startswith(f"{function}.") for each in known):
            raise LookupError(
                f"tests/mutants/targets.py spares {name} ({SPARED[name]}), which is not there: say "
                "in SPARED what it is called now, or take it out"
            )
    return found


def all_mutants() -> list[Mutant]:
    """Every mutant, in the order of modules and lines."""
    found = []
    for module, source in sources().items():
        for mutant in operators.mutants_of(module, source):
            if not _spared(mutant):
                found.append(mutant)
    return found


def _spared(mutant: Mutant) -> bool:
    name = f"{mutant.module}:{mutant.function}"
    return any(name == spared or name.startswith(f"{spared}.") for spared in SPARED)
