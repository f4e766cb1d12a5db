"""The keys of an engine's spec, and the refusal of what is not among them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dpbandit.policies import POLICIES
from dpbandit.privacy.noise import NOISES
from dpbandit.privacy.sensitivity import FORMS
from dpbandit.release import Release

COMMON = (
    "learner policy noise dim max_norm l1_limit one_hot low high clips horizon alpha ties_key "
    "context_noise contexts_key holdout"
)
_TREE = "levels unknown_horizon sensitivity multipliers"
KEYS = {
    "none": "",
    "ridge": f"site release ridge {_TREE} growth shape unshape floor public_arms rates weights "
    "form smallest_eigenvalue lemma_delta printed_index forget",
    "filter": "scale window knee ratio first life reward_variance rewards empirical_bayes memories "
    "memory_alone neglected find_scale widest public_contexts local local_anyhow local_scale local_variance",
    "pair": "scale window knee ratio first change growth versions first_eta2 later_eta2 "
    "reward_variance known_second reach persons",
    "joint": f"{_TREE} size reward_weight reward_centre ridge shift log_rounds",
    "arms": f"{_TREE} published_term privacy_bonus failure",
    "batches": "scale first ratio reward_variance",
}
# The releases that fit a site.
SUMS = ("tree", "honaker", "pan-private", "toeplitz", "episodes")
FITTING = {
    "nothing": ("once",),
    "reward": ("once",),
    "moments": SUMS,
    "own": ("tree",),
    "increment": ("tree",),
}


def check(spec: dict[str, Any], learners: Collection[str], sites: Collection[str]) -> None:
    """ValueError, with the name, for a key that is missing or unknown, or an unknown part."""
    _among("learner", spec.get("learner"), (*learners, "ridge"))
    wanted = {*COMMON.split(), *KEYS[spec["learner"]].split()}
    if wanted - set(spec):
        raise ValueError(f"the spec lacks {', '.join(sorted(wanted - set(spec)))}")
    if set(spec) - wanted:
        raise ValueError(f"the spec has unknown keys: {', '.join(sorted(set(spec) - wanted))}")
    _among("policy", spec["policy"], POLICIES)
    _among("noise", spec["noise"], NOISES)
    if (spec["learner"] in ("arms", "batches")) != (spec["policy"] == "index"):
        raise ValueError(f"policy {spec['policy']!r} does not go with learner {spec['learner']!r}")
    if spec["learner"] == "none" and spec["policy"] != "uniform":
        raise ValueError(f"policy {spec['policy']!r} has no use without a learner: 'uniform' has")
    if spec["learner"] != "ridge":
        return
    _among("site", spec["site"], sites)
    _among("form", spec["form"], FORMS)
    if spec["forget"] != 1.0 and not (0.0 < spec["forget"] < 1.0 and spec["site"] == "nothing"):
        raise ValueError(
            f"forget = {spec['forget']} at site {spec['site']!r}: it lies above 0 and below 1, in "
            "the clear alone, or is 1"
        )
    release = spec["release"]
    if spec["site"] == "moments" and isinstance(release, Release):
        for word in ("scale", "sums"):
            if not callable(getattr(release, word, None)):
                raise ValueError(f"release {release.name!r} does not say its {word}")
    else:
        _among(f"release for site {spec['site']!r}:", release, FITTING[spec["site"]])


def _among(what: str, name: Any, known: Collection[str]) -> None:
    if name not in known:
        raise ValueError(f"{what} {name!r} is not known here; known: {', '.join(known)}")
