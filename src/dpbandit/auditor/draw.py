"""Stories drawn at random: all that `dpb.make` takes, contexts that an adversary would choose, and
everything that can happen to a bandit.

Sizes are drawn where mistakes live: at the ends of what is allowed, at powers of two, and at
numbers whose squares vanish. Most stories are short, so that there are many of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dpbandit.algorithms import registry
from dpbandit.auditor.stories import Event, Kind, Pick, Public, Story
from dpbandit.privacy.unit import find_unit
from dpbandit.types import Matrix, Vector

Rng = np.random.Generator

NOISES = ("gaussian", "laplace", "laplace-l2")
RARE = 0.01
LONG = 2**17
# One story in so many is long.
RARELY = 4000
# The reference is slow, and so are the packed matrices of many features.
SHORT = 24


def names_of_proven() -> list[str]:
    """The built-in algorithms whose claims are proven."""
    found = registry.algorithms().items()
    proven = [name for name, one in found if "proven" in one.claim and "not" not in one.claim]
    return [name for name in proven if not registry.find(name).registered_by_user]


def stories(seed: int, number: int, names: Sequence[str]) -> Iterator[tuple[Story, Pick]]:
    """Stories under this number, each with what chooses its contexts while it is told.

    Not every bandit that is drawn can be made: there is always another one.

    >>> one, again = (next(stories(0, 7, ["dgs", "tree-gauss"]))[0] for _ in range(2))
    >>> one.name == again.name, (one.rewards == again.rewards).all().item()
    (True, True)
    """
    rng = np.random.default_rng([seed, number])
    while True:
        yield Drawer(rng, names).story()


def _maybe(rng: Rng, share: float) -> bool:
    return bool(rng.random() < share)


def _one(rng: Rng, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _size(rng: Rng, low: float, high: float) -> float:
    """A number between two powers of ten."""
    return float(10.0 ** rng.uniform(low, high))


# Options that only some algorithms have.
OWN: dict[str, Callable[[Rng], Any]] = {
    "rewards": lambda rng: _one(rng, "numbers", "clicks"),
    "window": lambda rng: _one(rng, 0.5, 0.375, _size(rng, -3, -0.31)),
    "knee": lambda rng: _size(rng, -2, 4),
    "ratio": lambda rng: _one(rng, 1.01, 1.2, 2.0, 10.0),
    "first_release": lambda rng: int(rng.integers(1, 9)),
    "reward_variance": lambda rng: _size(rng, -6, 6),
    "empirical_bayes": lambda rng: False,
    "memories": lambda rng: _one(rng, (), (_size(rng, 0, 4),), _size(rng, 0, 4)),
    "life": lambda rng: _one(rng, 1.0, 2.5, _size(rng, 0, 3)),
    "explore": lambda rng: "everything",
    "find_scale": lambda rng: False,
    "local": lambda rng: _one(rng, "never", int(rng.integers(1, 12))),
    "shape": lambda rng: _one(rng, "round", "ellipsoid", "instruments"),
    "honaker": lambda rng: True,
    "determinant_growth": lambda rng: _size(rng, -4, 1),
    "privacy_bonus": lambda rng: _one(rng, 0.0, 2.0, "theory"),
    "split_budget": lambda rng: True,
    "reward_weight": lambda rng: _one(rng, 0.5, _size(rng, -4, 4)),
    "centre_rewards": lambda rng: True,
    "shift": lambda rng: _size(rng, -2, 2),
    "smallest_eigenvalue": lambda rng: _size(rng, -3, 0),
    "private_features": lambda rng: [0],
}
# With which these are given more often than not: nothing is released before.
OFTEN = ("first_release", "shape", "ratio", "life", "local")


class Drawer:
    """One story, drawn."""

    def __init__(self, rng: Rng, names: Sequence[str]) -> None:
        self.rng = rng
        self.name = str(names[int(rng.integers(len(names)))])
        self.arms: Matrix | None = None
        # A reward in every node there is, moved from end to end, in one context again and again:
        # then a claim is used to the full, and what is a little too much shows.
        self.tight = _maybe(rng, 0.4)

    def story(self) -> tuple[Story, Pick]:
        rng = self.rng
        options = self.options = self._options()
        rows, long = self._rows(options), self.long
        low, high = options["reward_range"]
        unit = find_unit(options.get("unit", "reward"))
        self.person = not unit.counts_are_public
        # Of a person whose contexts are private any residual counts: nothing is here or there.
        self.turns = self.person and not self.private
        changed, users = self._changed(rows, int(unit.moves(high - low)) * unit.needs_user)
        rewards, others = self._rewards(rows, list(changed))
        other_xs = self._other_contexts(len(changed)) if self.private else None
        batches = self._batches(rows, long)
        picker = Picker(
            rng, options, self.arms, self.one_hot, self.tight and self.turns, self.tight
        )
        logged = 0
        if not long and rows > 2 and _maybe(rng, 0.04) and not options.get("pan_private"):
            logged = int(rng.integers(1, rows))
            options["horizon"] = None if options["horizon"] is None else rows
        story = Story(
            self.name,
            options,
            np.full((rows, options["dim"]), np.nan),
            rewards,
            changed,
            others,
            other_xs,
            users,
            batches,
            self._events(rows, long),
            logged,
            noise=int(rng.integers(2**32)),
            loud=float(_one(rng, 1.0, 1.0, 1.0, 0.0, 30.0, 1e9)),
            blocks=self.blocks,
        )
        if logged:
            story.xs[:logged] = picker.rows(logged)
        return story, picker.pick

    # ------------------------------------------------------------------ the bandit

    def _options(self) -> dict[str, Any]:
        rng, algorithm = self.rng, registry.find(self.name)
        self.one_hot, self.private = algorithm.one_hot, algorithm.contexts_are_private
        self.long = _maybe(rng, 1 / RARELY)
        sizes = ((1, 4), (1, 4), (1, 4), (1, 4), (1, 2), (5, 10), (5, 10), (11, 40))
        low, high = _one(rng, *sizes)
        dim = int(rng.integers(low, high, endpoint=True))
        if _maybe(rng, 0.01):
            dim = int(rng.integers(41, 201))
        if self.long or self.private:
            dim = min(dim, int(rng.integers(1, 7)))
        self.blocks = 0
        if "local" in algorithm.own_options and not self.long and _maybe(rng, 0.2):
            self.blocks = int(rng.integers(2, 5))
            dim = max(dim, 2 * self.blocks)
        given: dict[str, Any] = {"dim": dim, "seed": _one(rng, 0, 0, None)}
        given["epsilon"] = _one(rng, 1.0, 2.0, _size(rng, -2, 1.5), _size(rng, -6, 4))
        given["delta"] = _one(rng, 1e-5, 1e-6, _size(rng, -12, -0.1))
        if _maybe(rng, 0.5):
            given["noise"] = _one(rng, *NOISES)
        elif _maybe(rng, RARE):
            given["noise"] = "wishart"
        given["max_norm"] = longest = _one(
            rng, 1.0, 1.0, 1.0, 3.0, _size(rng, -3, 3), _size(rng, -99, 49), _size(rng, -99, 54.5)
        )
        if self.one_hot:
            given["max_norm"] = longest = 1.0
        # From the least that is allowed beside this norm to far above it.
        least = min(max(longest * longest * 1e-10, 1.01e-100), 9e99)
        ridge = _one(
            rng,
            1.0,
            least,
            longest * longest,
            least * 1.0000001,
            least * _size(rng, 0, 5),
            _size(rng, math.log10(least), 99.9),
        )
        given["ridge"] = min(max(ridge, least * 1.0000001), 9.9e99)
        given["reward_range"] = self._range()
        person = False
        if _maybe(rng, 0.3):
            given["unit"] = ("user", int(_one(rng, 1, 2, 3, 5)))
        elif self.name == "anytime" and _maybe(rng, 0.35):
            given["unit"] = ("spread", _one(rng, 1.0, 2.0, 2.5, 4.0))
        elif person := _maybe(rng, 0.2):
            width = given["reward_range"][1] - given["reward_range"][0]
            given["reward_range"] = (0.0, width)
            given["unit"] = ("person", width * _one(rng, 1.0, 1.0, 2.0, 1.5, 7.3))
        # Contexts that are not known may be reversed, which is worst for persons.
        if _maybe(rng, 0.15 if person else 0.5):
            self.arms = self._arms(dim, longest)
            given["public_contexts"] = self.arms
        if _maybe(rng, 0.12) and not person:
            given["pan_private"] = True
        if _maybe(rng, 0.04):
            given["context_noise"] = longest * _size(rng, -3, 1)
        if _maybe(rng, 0.15):
            given["alpha"] = _one(rng, 0.0, "theory", 3.0)
        given["backend"] = "reference" if _maybe(rng, 0.06) and not self.long else None
        for name in algorithm.own_options:
            if name in OWN and _maybe(rng, 0.7 if name in OFTEN else 0.3):
                given[name] = OWN[name](rng)
        if self.blocks:  # an answer protects one reward, and public contexts would be in blocks too
            given["local"] = "blocks"
            given.pop("public_contexts", None)
            self.arms = None
            if given.pop("unit", None) is not None:
                given["unit"] = ("user", 1)
        # Without draws of their own: what else a story has stays the same.
        if "policy" in algorithm.own_options and dim % 4 == 3 and given.get("alpha") != "theory":
            given["policy"] = "sampled"
        if dim % 4 == 2:
            given["holdout"] = 0.25
        if person:
            given.pop("window", None)
        if given.get("rewards") == "clicks":
            low, high = given["reward_range"]
            given["reward_range"] = (0.0, high - low)
            given.pop("reward_variance", None)
        if given.get("shape", "round") != "round" and self.arms is None:
            self.arms = given["public_contexts"] = self._arms(dim, longest)
        return given

    def _range(self) -> tuple[float, float]:
        rng = self.rng
        width = _one(rng, 1.0, 1.0, 2.0, _size(rng, -6, 6), _size(rng, -99, 99))
        match int(rng.integers(6)):
            case 0 | 1:
                return -width / 2, width / 2
            case 2:
                return 0.0, width
            case 3:
                return 1e6 * width, 1e6 * width + width
            case 4:
                low = -width * _size(rng, 0, 8.9)
                return low, low + width
            case _:
                low = width * _size(rng, -3, 8.9)
                return low, low + width

    def _arms(self, dim: int, longest: float) -> Matrix:
        """Public contexts: spanning, collinear, nearly so, tiny, or nothing at all."""
        rng, many = self.rng, int(self.rng.integers(1, 9))
        if self.one_hot:
            return np.eye(dim)
        if self.tight and _maybe(rng, 0.5):  # one that is never played needs the most noise
            many = 1
        arms = rng.normal(size=(many, dim))
        match int(rng.integers(8)):
            case 0:  # an intercept and a dummy: their sum is another column
                arms = np.eye(dim)[rng.integers(dim, size=many)]
                arms[:, 0] = 1.0
            case 1:  # hardly apart
                arms = arms[:1] + _size(rng, -12, -2) * arms
            case 2:  # all along one direction
                arms = arms[:1] * rng.normal(size=(many, 1))
            case 3:
                arms = np.eye(dim)[rng.integers(dim, size=many)]
            case 4:  # some short, some long
                arms *= 10.0 ** rng.uniform(-8, 0, size=(many, 1))
            case 5:
                arms = np.round(arms)
            case _:
                pass
        lengths = np.linalg.norm(arms, axis=1, keepdims=True)
        lengths = np.maximum(lengths, 1e-300)
        arms = arms / (lengths if _maybe(rng, 0.7) else lengths.max()) * longest
        if _maybe(rng, 0.12):  # squares vanish
            arms *= _one(rng, 1.5e-162 / longest, _size(rng, -170, -140), _size(rng, -320, -8))
        return np.ascontiguousarray(arms)

    # ------------------------------------------------------------------ what happens

    def _rows(self, options: dict[str, Any]) -> int:
        rng = self.rng
        power = int(2 ** rng.integers(0, 8))
        rows: int = _one(
            rng,
            int(rng.integers(1, 12)),
            int(rng.integers(1, 33)),
            int(rng.integers(10, 70)),
            max(1, power + int(rng.integers(-1, 2))),
        )
        if _maybe(rng, 0.02):
            rows = int(rng.integers(100, 1100))
        if options["dim"] > 20:
            rows = min(rows, 40)
        if options["backend"] == "reference":
            rows = min(rows, SHORT)
        if self.long:
            rows = int(2 ** rng.uniform(11, 17))
        if self.tight:
            rows = 2 ** (rows.bit_length() - 1)
            options["horizon"] = rows
            return rows
        options["horizon"] = _one(
            rng, None, None, rows, rows, rows + int(rng.integers(0, 9)), 2 * rows, max(1, rows - 2)
        )
        return rows

    def _changed(self, rows: int, cap: int) -> tuple[tuple[int, ...], tuple[str, ...] | None]:
        """Which rows differ, and whose all of them are."""
        rng = self.rng
        if self.tight or _maybe(rng, 0.5):
            first = 0
        else:
            power = int(2 ** rng.integers(0, max(rows.bit_length(), 1)))
            first = _one(rng, power - 1, power, rows - 1, int(rng.integers(rows)))
            first = min(max(first, 0), rows - 1)
        if not cap:
            return (first,), None
        # A person's beyond the cap count for nothing, in any number; a spread user's are dropped.
        uncounted = self.person or self.options["unit"][0] == "spread"
        most = 3 * cap + 4 if uncounted else cap + 4
        many = int(rng.integers(cap if self.person and self.tight else 1, most))
        many = min(many, rows)
        if _maybe(rng, 0.6):
            mine = list(range(first, min(first + many, rows)))
        else:
            mine = sorted(int(row) for row in rng.choice(rows, size=many, replace=False))
        crowd = _one(rng, 1, 3, rows)
        users = [f"u{int(rng.integers(crowd))}" for _ in range(rows)]
        for row in mine:
            users[row] = "target"
        return tuple(mine), tuple(users)

    def _rewards(self, rows: int, changed: list[int]) -> tuple[Vector, Vector]:
        rng, (low, high) = self.rng, self.options["reward_range"]
        width, many = high - low, len(changed)
        match int(rng.integers(5)):
            case 0:
                rewards = np.full(rows, low)
            case 1:
                rewards = rng.choice([low, high], size=rows)
            case 2:
                rewards = np.full(rows, high)
            case 3:
                rewards = rng.uniform(low, high, size=rows)
            case _:
                far = [low - 10 * width, high + 10 * width, -1e308, 1e308, low, high]
                rewards = rng.choice(far, size=rows)
        match 7 if self.tight else int(rng.integers(8)):
            case 0:
                other = rng.uniform(low, high, size=many)
            case 1:
                other = rng.choice([-1e308, 1e308, low - width, high + width], size=many)
            case 2:  # hardly apart
                other = np.nextafter(rewards[changed], high)
            case _:  # from one end to the other, or beyond them
                beyond = width * _one(rng, 0.0, 0.0, 0.0, 1.0, 1e9)
                ends = [low - beyond, high + beyond][:: _one(rng, 1, -1)]
                rewards[changed], other = ends[0], np.full(many, ends[1])
                if self.turns and (self.tight or _maybe(rng, 0.7)):
                    # As much here in one stream as there in the other.
                    rewards[changed[1::2]], other[1::2] = ends[1], ends[0]
                if self.person and not self.tight and _maybe(rng, 0.3):  # each is rounded
                    rewards[changed], other = rewards[changed] * 1e-6, other * 1e-6
        return rewards, other

    def _batches(self, rows: int, long: bool) -> tuple[int, ...]:
        rng = self.rng
        if long or rows > 300:
            size = max(rows // 40, 1)
            return (size,) * (rows // size + 1)
        if _maybe(rng, 0.75):
            return ()
        return tuple(int(size) for size in rng.integers(1, 9, size=rows // 3))

    def _events(self, rows: int, long: bool) -> tuple[Event, ...]:
        rng, events = self.rng, []
        kinds: tuple[Kind, ...] = ("save", "interrupt", "interrupt", "nan", "long", "wide", "offer")
        many = 0 if long else int(_one(rng, 0, 0, 0, 1, 1, 3))
        for _ in range(many):
            kind = kinds[int(rng.integers(len(kinds)))]
            events.append(Event(int(rng.integers(rows)), kind, int(rng.integers(1, 700))))
        if self.person and not long and _maybe(rng, 0.4):
            events.append(Event(int(rng.integers(min(rows, 16))), "save"))
        if self.options.get("pan_private") and _maybe(rng, 0.7):
            events.append(Event(int(rng.integers(rows)), "look"))
        if self.options.get("context_noise") and not self.private:
            at = range(rows) if rows < 300 else ()
            events += [Event(row, "offer") for row in at if _maybe(rng, 0.5)]
        return tuple(events)

    def _other_contexts(self, changed: int) -> Matrix:
        """Where contexts are private: anything of allowed norm."""
        rng, dim = self.rng, self.options["dim"]
        xs = rng.normal(size=(changed, dim))
        if _maybe(rng, 0.3):
            xs = np.eye(dim)[rng.integers(dim, size=changed)] * _one(rng, 1.0, -1.0)
        xs /= np.maximum(np.linalg.norm(xs, axis=1, keepdims=True), 1e-300)
        xs *= self.options["max_norm"] * _one(rng, 1.0, 1.0, 1 + 9e-10, 0.5, 0.0)
        if self.person and _maybe(rng, 0.5):
            xs[1:] = np.nan  # one visit elsewhere, and rewards that differ in the others
        return xs


class Picker:
    """Contexts that an adversary chooses, also in answer to what was released."""

    STYLES = ("known", "known", "equal", "random", "axes", "tiny", "mixed", "weakest", "theta",
              "minus theta", "selected", "opposite", "zero", "near")  # fmt: skip

    def __init__(
        self,
        rng: Rng,
        options: dict[str, Any],
        arms: Matrix | None,
        one_hot: bool,
        turns: bool,
        tight: bool,
    ) -> None:
        self.rng = np.random.default_rng(rng.integers(2**32))
        self.options, self.arms, self.one_hot = options, arms, one_hot
        self.dim, self.longest = int(options["dim"]), float(options["max_norm"])
        self.style, self.left, self.one_arm = "", 0, 0
        self.turns, self.told = turns, 0  # every second context is reversed
        if tight:
            self.style, self.left = "known", LONG
        self.gram = np.eye(self.dim) * 1e-6
        self.full = float(_one(self.rng, 1.0, 1.0, 1.0, 1 + 9e-10))
        if arms is not None and tight:  # the one that needs the most noise
            self.one_arm = int(np.abs(arms).max(axis=1).argmax())
        # Strangers among known contexts change the noise for good: most stories have none.
        self.strangers = arms is None or _maybe(self.rng, 0.15)
        self.base = self._unit(self.rng.normal(size=self.dim))
        self.limit = math.inf
        self.public: Public | None = None

    def pick(self, public: Public, count: int) -> Matrix:
        """So many contexts, from what is public."""
        self.public, limit = public, public.l1_limit
        self.limit = math.inf if limit is None else limit
        return self.rows(count)

    def rows(self, count: int) -> Matrix:
        """So many contexts."""
        rng, found = self.rng, np.empty((count, self.dim))
        done = 0
        while done < count:
            if self.left <= 0:
                styles = self.STYLES if self.strangers else ("known", "known", "known", "selected")
                self.style = str(styles[int(rng.integers(len(styles)))])
                self.left = int(rng.geometric(1 / max(8, count // 4)))
                self.base = self._unit(rng.normal(size=self.dim))
                self.one_arm = int(rng.integers(1 << 30)) if _maybe(rng, 0.5) else -1
            many = min(self.left, count - done, max(1, count // 8))
            found[done : done + many] = self._rows_of(many)
            done, self.left = done + many, self.left - many
        if self.turns:
            odd = (self.told + np.arange(count)) % 2 == 1
            if self.one_hot:
                found[odd] = np.roll(found[odd], 1, axis=1)
            elif self.arms is None:
                found[odd] *= -1.0
            self.told += count
        return found

    def _rows_of(self, many: int) -> Matrix:
        if self.one_hot:
            every = self.rng.integers(self.dim, size=many)
            which = every if self.one_arm < 0 else np.full(many, self.one_arm % self.dim)
            return np.asarray(np.eye(self.dim)[which])
        if self.arms is not None and (self.style == "known" or not self.strangers):
            return self._known(many)
        unit = self._units(many)
        unit = np.where(np.isfinite(unit), unit, 0.0)
        if self.dim <= 12:
            for row in unit[-8:]:
                self.gram += np.outer(row, row)
        xs = unit * (self.longest * self.full)
        total = np.abs(xs).sum(axis=1, keepdims=True)
        if math.isinf(self.limit):
            return xs
        # In two steps: a share of numbers near the ends of what floats hold is none.
        return np.where(total > self.limit, xs / np.maximum(total, 1e-300) * self.limit, xs)

    def _known(self, many: int) -> Matrix:
        """Public contexts, bit for bit."""
        arms = self.arms
        if arms is None:
            raise ValueError("no contexts are known")
        which = self.rng.integers(len(arms), size=many)
        if self.style == "selected" and self.public is not None:
            which = np.full(many, self.public.select(arms))
        elif self.one_arm >= 0:
            which = np.full(many, self.one_arm % len(arms))
        found: Matrix = arms[which]
        return found

    def _units(self, many: int) -> Matrix:
        rng, dim = self.rng, self.dim
        if self.style in ("equal", "known"):
            return np.tile(self.base, (many, 1))
        if self.style == "random":
            return self._unit(rng.normal(size=(many, dim)))
        if self.style == "axes":
            return np.asarray(np.eye(dim)[rng.integers(dim, size=many)])
        if self.style == "tiny":
            return self._unit(rng.normal(size=(many, dim))) * _size(rng, -170, -1)
        if self.style == "mixed":
            return self._unit(rng.normal(size=(many, dim))) * 10.0 ** rng.uniform(-6, 0, (many, 1))
        if self.style == "weakest":
            return np.tile(np.linalg.eigh(self.gram)[1][:, 0], (many, 1))
        if self.style in ("theta", "minus theta") and self.public is not None:
            theta = self.public.theta
            top = float(np.abs(theta).max())
            sign = 1.0 if self.style == "theta" else -1.0
            return np.tile(sign * self._unit(theta / top if top > 0 else self.base), (many, 1))
        if self.style == "selected" and self.public is not None and math.isinf(self.limit):
            slate = self._unit(rng.normal(size=(5, dim)))
            return np.tile(slate[self.public.select(slate * self.longest)], (many, 1))
        if self.style == "zero":
            return np.zeros((many, dim))
        if self.style == "near":
            return self._unit(self.base + _size(rng, -10, -3) * rng.normal(size=(many, dim)))
        signs = np.where(np.arange(many) % 2, -1.0, 1.0)[:, None]
        return np.tile(self.base, (many, 1)) * signs

    @staticmethod
    def _unit(rows: Matrix) -> Matrix:
        """Of length 1, and not more."""
        lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
        return np.asarray(rows / np.maximum(lengths, 1e-300))
