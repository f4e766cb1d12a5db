"""The names of all algorithms, ours and those a user registers."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar

from numpy.typing import ArrayLike

from dpbandit.algorithms import (
    adac_oful,
    anytime,
    anytime_joint,
    dgs,
    dp_klucb,
    joint,
    linucb,
    local,
    private_linucb,
    private_ts,
    private_ucb,
    random,
    toeplitz,
    tree_gauss,
)
from dpbandit.bandit import Bandit
from dpbandit.defaults import LARGE_DELTA, REWARD_RANGE
from dpbandit.design import Design
from dpbandit.encoder import Encoder
from dpbandit.encoder.encode import encoder_of
from dpbandit.errors import (
    LargeDeltaWarning,
    OptionError,
    PrivacyWarning,
    RangeWarning,
    UnknownAlgorithmError,
    nearest,
)
from dpbandit.options import Options, build
from dpbandit.privacy.claim import Claim

P = ParamSpec("P")
T = TypeVar("T")

# The names in ALGORITHMS, for editors and type checkers.
Name = Literal[
    "random",
    "linucb",
    "private-linucb",
    "private-linucb-published",
    "dgs",
    "dgs-published",
    "dgs-figure",
    "local",
    "tree-gauss",
    "toeplitz",
    "anytime",
    "private-ts",
    "adac-oful",
    "private-ucb",
    "dp-klucb",
    "joint",
    "anytime-joint",
]


@dataclass(frozen=True)
class Algorithm:
    """One line of `dpb.algorithms()`."""

    description: str
    claim: str
    reference: str
    factory: Callable[..., Any]  # (name, options) → design; or a black box's: (**options) → bandit
    own_options: tuple[str, ...] = ()
    registered_by_user: bool = False
    one_hot: bool = False  # contexts may only name arms
    contexts_are_private: bool = False
    black_box: bool = False  # only its factory knows its options and its product


def entry(module: Any, word: str = "") -> Algorithm:
    """The registry entry of an algorithm's file.

    The constants of a second algorithm in the same file begin with `word`.
    """
    prefix = f"{word}_" if word else ""
    return Algorithm(
        getattr(module, f"{prefix}DESCRIPTION"),
        getattr(module, f"{prefix}CLAIM"),
        getattr(module, f"{prefix}REFERENCE"),
        getattr(module, f"{prefix.lower()}design"),
        getattr(module, f"{prefix}OPTIONS", ()),
        one_hot=getattr(module, "ONE_HOT", False),
        contexts_are_private=getattr(module, "CONTEXTS_ARE_PRIVATE", False),
    )


# One line for each algorithm.
ALGORITHMS: dict[str, Algorithm] = {
    "random": entry(random),
    "linucb": entry(linucb),
    "private-linucb": entry(private_linucb),
    "private-linucb-published": entry(private_linucb, "PUBLISHED"),
    "dgs": entry(dgs),
    "dgs-published": entry(dgs, "PUBLISHED"),
    "dgs-figure": entry(dgs, "FIGURE"),
    "local": entry(local),
    "tree-gauss": entry(tree_gauss),
    "toeplitz": entry(toeplitz),
    "anytime": entry(anytime),
    "private-ts": entry(private_ts),
    "adac-oful": entry(adac_oful),
    "private-ucb": entry(private_ucb),
    "dp-klucb": entry(dp_klucb),
    "joint": entry(joint),
    "anytime-joint": entry(anytime_joint),
}


def algorithms() -> dict[str, Algorithm]:
    """All algorithms.

    Returns
    -------
    dict
        Name → description, claim, reference, own options.

    Examples
    --------
    >>> import dpbandit as dpb
    >>> dpb.algorithms()["tree-gauss"].claim
    'GDP, proven'
    """
    return dict(ALGORITHMS)


def find(name: str) -> Algorithm:
    """The algorithm of that name, or an error with the nearest one."""
    try:
        found = ALGORITHMS[name]
    except (KeyError, TypeError):
        raise UnknownAlgorithmError(
            f"no algorithm is called {name!r}: {nearest(name, ALGORITHMS)}"
        ) from None
    if not isinstance(found, Algorithm):
        raise UnknownAlgorithmError(f"{found!r} stands under {name!r}, and is no algorithm")
    return found


def make_named(name: str, **options: Any) -> Any:
    """`make` for a name known only at run time: in a variable, or registered by a user."""
    given = {key: value for key, value in options.items() if (key, value) != ("dim", None)}
    bandit = construct_with_encoder(name, given)
    warn_of_large_delta(getattr(bandit, "claim", None), options.get("horizon"), stacklevel=4)
    warn_of_no_range(bandit, given)
    return bandit


def answered_by(function: Callable[..., Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A signature for readers, editors and type checkers; `function` gets only the given arguments.

    Defaults are not passed on: a user's own algorithm, or one that lacks an option, must not get
    it.
    """

    def decorate(signature: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(signature)
        def call(*args: P.args, **options: P.kwargs) -> T:
            found: T = function(*args, **options)
            return found

        return call

    return decorate


@answered_by(make_named)
def make(  # type: ignore[empty-body]
    name: Name,
    *,
    dim: int | None = None,
    encoder: Encoder | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    reward_range: tuple[float, float] = (-1.0, 1.0),
    horizon: int | None = None,
    alpha: float | Literal["theory"] | None = None,
    ridge: float = 1.0,
    max_norm: float = 1.0,
    public_contexts: ArrayLike | None = None,
    noise: Literal["gaussian", "laplace", "laplace-l2", "wishart"] | None = None,
    unit: Literal["reward"]
    | tuple[Literal["user"], int]
    | tuple[Literal["spread", "person"], float] = "reward",
    seed: int | None = None,
    pan_private: bool = False,
    context_noise: float = 0.0,
    holdout: float = 0.0,
    theta_norm: float = 1.0,
    zeta: float = 0.05,
    reward_noise: float = 0.5,
    backend: Literal["core", "reference"] | None = None,
    rewards: Literal["numbers", "clicks"] = "numbers",
    window: float | None = None,
    private_features: Sequence[int] | Sequence[bool] | None = None,
    knee: float | None = None,
    ratio: float | None = None,
    first_release: int | None = None,
    reward_variance: float | None = None,
    empirical_bayes: bool = True,
    memories: Sequence[float] | float = (27_000.0, 9_000.0, 4_000.0, 2_000.0, 1_000.0),
    life: float | None = None,
    explore: Literal["neglected", "everything"] = "neglected",
    policy: Literal["centred-ucb", "thompson", "sampled"] | None = None,
    find_scale: bool | None = None,
    local: Literal["blocks", "never"] | int = "blocks",
    shape: Literal["round", "ellipsoid", "instruments"] = "round",
    honaker: bool = False,
    determinant_growth: float = 1.0,
    privacy_bonus: float | Literal["theory"] = 0.75,
    split_budget: bool = False,
    reward_weight: float = 1.0,
    centre_rewards: bool = False,
    shift: float = 2.0,
    clip_rewards: bool = False,
    forget: float = 1.0,
    smallest_eigenvalue: float | None = None,
    form: Literal["simplified", "full"] = "simplified",
    printed_index: bool = False,
) -> Bandit:
    """Make a bandit. Without a seed it draws real noise; with one it is a reproducible simulation.

    Parameters
    ----------
    name : str
        The algorithm: see `dpb.algorithms()`.
    dim : int
        Number of features of a context; not needed with an encoder.
    encoder : Encoder, optional
        Turns records into contexts, and sets `dim`. It is saved with the bandit and exported with
        the model; `bandit.encoder` returns it.
    epsilon : float
        ε of the promise; required by private algorithms. `float("inf")` switches off noise, and the
        claim with it.
    delta : float
        δ of the promise; required with Gaussian noise. Warns if δ > 1/`horizon`, or if δ ≥ 10⁻³ and
        there is no horizon.
    reward_range : (float, float), default (-1, 1)
        Rewards are clipped to it, and noise is scaled to its width. Warns if omitted: clicks need
        (0, 1), half the noise of (-1, 1).
    horizon : int, optional
        Number of rewards to learn from. None: unknown and unbounded.
    alpha : float or 'theory', default 0.3
        Width of the exploration bonus. Default 0.6 for `anytime`, 0.5 for clicks. For `dp-klucb` it
        scales the index's logarithm, default 1.
    ridge : float, default 1.0
        λ, the strength of the regularisation.
    max_norm : float, default 1.0
        Largest norm of a context; longer ones are refused.
    public_contexts : array of shape (n, dim), optional
        Contexts known in advance. With them some algorithms need less noise or explore better. For
        `anytime-joint`: a public sample resembling people's contexts, which shapes its first
        whitener.
    noise : {'gaussian', 'laplace', 'laplace-l2', 'wishart'}, optional
        Default: the algorithm's own. 'laplace-l2' and 'wishart' (`joint`) are for simulations.
    unit : 'reward', ('user', m), ('spread', m) or ('person', C), default 'reward'
        Who is protected: one reward; one user with at most m rewards; one user whose rewards
        together move sums no further than m rewards in one context would (`anytime`); or one person
        with any number of rewards, of which a total of at most C is learned from.
    seed : int, optional
        A number: a repeatable simulation. None: real noise.
    pan_private : bool, default False
        Protect also if memory is inspected once: `private-linucb`, `tree-gauss`.
    context_noise : float, default 0
        σ of Corollary 1's perturbation of contexts.
    holdout : float, default 0
        The share of decisions made at random, every arm equally likely: 0.02, say. Any other
        algorithm can then be evaluated from the log (`Bandit.decide`, `dpb.replay`).
    theta_norm, zeta, reward_noise : float, default 1.0, 0.05, 0.5
        S, ζ and R, only for alpha='theory'.
    backend : {'core', 'reference'}, optional
        The engine: the compiled core, or the reference in NumPy. Both do the same. Default: the
        core where possible.

    Other Parameters
    ----------------
    rewards : {'numbers', 'clicks'}, default 'numbers'
        `anytime`, `anytime-joint`: the kind of reward. Clicks are 0 or b in a reward_range (0, b);
        variances then follow the released rate.
    window : float, default 0.375
        `anytime`, `anytime-joint`: residuals are clipped to ± this share of the range around the
        prediction; at most 0.5, or 1. For clicks 0.5, or 1.
    private_features : list of int or mask of bool, default all
        `anytime-joint`: the protected columns of a context; the claim names them.
    knee : float, default from dim and μ
        `anytime`: rounds before weights grow.
    ratio : float, default 1.025, or 1.25
        `anytime`: a release comes when rounds have grown by this factor; `dp-klucb`: when an arm's
        pulls have.
    first_release : int, default knee/20, or 8 standard deviations of the noise
        `anytime`: round of the first release; `dp-klucb`: pulls in an arm's first batch.
    reward_variance : float, default W²/16, or none
        `anytime`, `dp-klucb`: public guess of a reward's variance around its mean; with
        `find_scale` an upper bound.
    empirical_bayes : bool, default True
        `anytime`: several prior variances compete on how well they predict releases.
    memories : list of float or float, default (27000, 9000, 4000, 2000, 1000)
        `anytime`: rounds after which past information fades to about a third. These memories, and
        one that never forgets, compete on how well they predict releases. For clicks they are
        (27000, 9000, 3000). One number, not in a list: that memory always acts.
    life : float, default 10,000 or 12 knees
        `anytime`: rounds after which the interval between releases stops growing, so that releases
        stay current.
    policy : {'centred-ucb', 'thompson', 'sampled'}, optional
        `anytime` plays the highest bound ('centred-ucb') and `anytime-joint` samples its posterior
        ('thompson'). With 'sampled' both draw a random arm, with probabilities in closed form,
        so that propensities are exact.
    explore : {'neglected', 'everything'}, default 'neglected'
        `anytime`: the uncertainty that the bonus covers: directions that play neglects, or all.
    find_scale : bool, default True where possible
        `anytime`: release the size of residuals beside the sum, at no extra cost, and narrow the
        window and the assumed variance to it. Off for clicks, for units whose counts follow rewards
        or instruments, and where `window` is 0.5.
    local : {'blocks', 'never'} or int, default 'blocks'
        `anytime`: whether the first rewards are released one by one, at pure ε. 'blocks': where the
        arms of a slate share no feature. 'never': the claim is then μ-GDP. A number: that many
        rewards in any case. Units of several rewards: never.
    shape : {'round', 'ellipsoid', 'instruments'}, default 'round'
        `tree-gauss`, `toeplitz`, `private-ts`, `adac-oful`: noise shaped like the public contexts.
    honaker : bool, default False
        `tree-gauss`: combine all nodes of the tree; about a quarter less error for the same budget.
    determinant_growth : float, default 1.0
        `adac-oful`: an episode ends when det A has grown by 1 + this.
    privacy_bonus : float or 'theory', default 0.75
        `private-ucb`: scales the term of its index for the privacy noise.
    split_budget : bool, default False
        `private-ucb`: the published split of ε over arms.
    reward_weight : float, default 1.0
        `joint`: squared size of the reward's coordinate beside the context's.
    centre_rewards : bool, default False
        `joint`: subtract the middle of the range from rewards.
    shift : float, default 2.0
        `joint`: regulariser, in units of the bound on the noise's lowest eigenvalue.
    clip_rewards : bool, default False
        `linucb`: clip as the private algorithms do.
    forget : float, default 1.0
        `linucb`: the share of earlier information that each round keeps; 0.9999 follows a θ that
        moves.
    smallest_eigenvalue : float, default from public_contexts
        `dgs-published`, `dgs-figure`, `dgs`: λ₀ of Lemma 1; for `dgs` only with alpha='theory'.
    form : {'simplified', 'full'}, default 'simplified'
        `dgs-published`: which form of Lemma 1.
    printed_index : bool, default False
        `dgs-published`, `dgs-figure`: Algorithm 1's index as printed.

    Returns
    -------
    Bandit
        Or the product of a registered algorithm's factory.

    Raises
    ------
    OptionError
        If an option is missing, outside its range, or unknown to this algorithm.
    UnknownAlgorithmError
        If no algorithm has that name.

    Examples
    --------
    >>> import dpbandit as dpb
    >>> bandit = dpb.make("dgs", dim=3, epsilon=2.0, delta=1e-5, horizon=1_000, seed=7)
    >>> print(bandit.claim.status, bandit.claim.noise)
    proven simulation
    """


def know(entries: Mapping[str, Algorithm]) -> None:
    """Add another process's entries; identical ones stay as they are."""
    for name, algorithm in entries.items():
        if ALGORITHMS.get(name) is not algorithm:
            ALGORITHMS[name] = algorithm


def construct_with_encoder(name: str, options: Mapping[str, Any]) -> Any:
    """`construct`, with the dimension and the private columns that an encoder declares."""
    encoder = options.get("encoder")
    given = {key: value for key, value in options.items() if key != "encoder"}
    if encoder is None:
        return construct(name, given)
    encoder_of(encoder)
    if given.setdefault("dim", encoder.dim) != encoder.dim:
        raise OptionError(
            f"dim = {given['dim']} was asked for, and the encoder has {encoder.dim} columns"
        )
    algorithm = find(name)
    if encoder.private and not algorithm.contexts_are_private:
        words = (
            f"the encoder marks {', '.join(encoder.private)} as private, but {name} treats contexts as "
            "public: use 'anytime-joint', or omit private=... if everybody may know them"
        )
        if alone := encoder.ranks_no_arms:
            words += f". {', '.join(alone)} in no cross with the item rank no arms: leave them out"
        raise OptionError(words)
    if encoder.private and "private_features" in algorithm.own_options:
        given["private_features"] = _private_columns(encoder, given.get("private_features"))
    bandit = construct(name, given)
    if not isinstance(bandit, Bandit):
        raise OptionError(f"{name!r} does not make a dpbandit.Bandit: no encoder fits")
    if bandit.one_hot:
        raise OptionError(f"{name} is for arms without features: omit encoder=...")
    bandit.use_encoder(encoder.fixed())
    return bandit


def _private_columns(encoder: Encoder, asked: Any) -> list[int]:
    """The columns that the encoder declares, and any others asked for: never fewer."""
    if asked is None:
        return encoder.private_columns
    columns = anytime_joint.features(asked, encoder.dim)
    if missing := sorted(set(encoder.private_columns) - set(columns)):
        raise OptionError(
            f"private_features leaves out columns {missing}, which the encoder declares private "
            f"({', '.join(encoder.private)}): omit private_features, or name them too"
        )
    return columns


def construct(name: str, options: Mapping[str, Any]) -> Any:
    """`make` without its warnings, for callers that make many."""
    algorithm = find(name)
    if algorithm.black_box:
        return algorithm.factory(**options)
    built = build(options, algorithm.own_options, name)
    try:
        design = algorithm.factory(name, built)
        if not isinstance(design, Design):
            raise OptionError(f"the design of {name!r} must return a dpbandit.design.Design")
        if design.contexts_are_private != algorithm.contexts_are_private:
            # Logs and worlds are read before there is a design.
            raise OptionError(
                f"the design of {name!r} says contexts_are_private={design.contexts_are_private}: "
                "register it with the same word, so that nobody looks at contexts before"
            )
        return Bandit(name, built, design)
    except MemoryError:
        raise OptionError(
            f"{name} does not fit into memory with dim = {built.dim:,}: each of its matrices has dim "
            f"× dim numbers, {8 * built.dim**2 / 2**30:,.1f} GiB. Hash or project the features first "
            "(dpb.Encoder, dpb.Hashed)"
        ) from None


def warn_of_large_delta(claim: Claim | None, horizon: int | None, *, stacklevel: int = 3) -> None:
    """(ε, δ) with δ ≥ 1/T allows a mechanism that publishes one of T rewards in the clear."""
    if claim is None or claim.status == "none":
        return
    if not horizon and LARGE_DELTA <= claim.delta < 1:
        warnings.warn(
            f"delta = {claim.delta:g} without a horizon: δ must lie well below one over the number of "
            f"rewards, such as 1e-6. This δ would allow publishing one reward in {1 / claim.delta:,.0f} "
            "in the clear",
            LargeDeltaWarning,
            stacklevel=stacklevel,
        )
    if horizon and claim.delta > 1 / horizon:
        warnings.warn(
            f"delta = {claim.delta:g} is above 1/horizon = {1 / horizon:g}: fine to reproduce a "
            "paper, too large to protect people (it would allow publishing one random reward in the "
            "clear)",
            PrivacyWarning,
            stacklevel=stacklevel,
        )


def warn_of_no_range(bandit: Any, given: Mapping[str, Any]) -> None:
    """Noise is scaled to the width of the range, so a forgotten range silently costs regret."""
    if "reward_range" in given or not isinstance(bandit, Bandit):
        return
    if bandit.claim.status != "none" and bandit.design.clips and bandit.design.is_private:
        warnings.warn(
            f"reward_range was not given: rewards are clipped to {REWARD_RANGE}, and noise is scaled "
            "to its width. That is twice the noise that clicks (0 or 1) need: give "
            "reward_range=(0, 1)",
            RangeWarning,
            stacklevel=4,
        )


def register(
    name: str,
    factory: Callable[..., Any] | None = None,
    *,
    design: Callable[[str, Options], Design] | None = None,
    options: tuple[str, ...] = (),
    description: str = "registered by the user",
    claim: str = "none stated",
    reference: str = "",
    contexts_are_private: bool = False,
    replace: bool = False,
) -> None:
    """Add your own algorithm. It then runs in `dpb.run` and on the command line beside ours.

    Give either a `design` or a `factory`. A design names the algorithm's parts, so that it is
    verified, saved, exported and planned for like ours. A factory makes any object that selects and
    learns, and can only be attacked from outside.

    Parameters
    ----------
    name : str
        Its name for `dpb.make`.
    factory : callable, optional
        `factory(**options)` returns an object with select(contexts) and update(context, reward).
        `theta` and `claim` are used where they exist.
    design : callable, optional
        `design(name, options)` returns a `dpbandit.design.Design`.
    options : tuple of str
        With a design: the names of options that only this algorithm has.
    description, claim, reference : str
        For `dpb.algorithms()`.
    contexts_are_private : bool, default False
        With a design: whether it protects contexts, as the design says too. Then nothing reads a log's
        contexts, or a world's, before they are protected.
    replace : bool, default False
        Replace an algorithm registered earlier under this name; ours are never replaced.

    Raises
    ------
    OptionError
        If the name is taken, or if not exactly one callable factory or design is given.

    Examples
    --------
    >>> import dpbandit as dpb
    >>> class First:
    ...     def __init__(self, **options): pass
    ...     def select(self, contexts): return 0
    ...     def update(self, context, reward): pass
    >>> dpb.register("first-arm", First, description="always the first arm", replace=True)
    >>> dpb.make("first-arm", dim=2).select([[0.0, 1.0]])
    0
    >>> from dpbandit.algorithms.moments import on_moments
    >>> from dpbandit.policies import THOMPSON
    >>> from dpbandit.release import Honaker
    >>> def design(name, options):
    ...     return on_moments(name, options, "gaussian", release=Honaker, policy=THOMPSON)
    >>> dpb.register("honaker-ts", design=design, claim="GDP, proven", replace=True)
    >>> dpb.make("honaker-ts", dim=2, epsilon=1.0, delta=1e-6, horizon=100, seed=0).claim.status
    'proven'
    """
    makes = factory if design is None else design
    if not callable(makes) or (factory is not None and design is not None):
        raise OptionError(
            "register needs either a factory that can be called with options, or a design, not "
            f"{factory!r} and {design!r}"
        )
    if options and design is None:
        raise OptionError("a factory knows its own options: omit options=...")
    if name in ALGORITHMS and not (replace and ALGORITHMS[name].registered_by_user):
        raise OptionError(f"an algorithm called {name!r} exists: choose another name")
    ALGORITHMS[name] = Algorithm(
        description,
        claim,
        reference,
        makes,
        tuple(options),
        registered_by_user=True,
        contexts_are_private=contexts_are_private,
        black_box=design is None,
    )
