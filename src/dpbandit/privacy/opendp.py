"""OpenDP's exact samplers for vectors of floats and of whole numbers, with little in between.

OpenDP's Python wrappers find out types anew at every call, which takes longer than drawing the
noise. Here the functions of its library that the wrappers call are called with the same arguments.
How to call them is what the installed wrappers themselves declare; should a version of OpenDP
declare anything else, the wrappers are called: slower, and the same noise. OpenDP is imported when
the first sampler is made."""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import NoiseError
from dpbandit.types import Vector

NUMBER = b"f64"  # shifts and costs

# OpenDP clips whole noise to 64 bits. Noise is drawn for zeros, so a clipped number would tell the
# value behind it: scales stop where that has a probability that no double can hold. Beyond 40
# scales lies less than 1e-349 of a Gaussian, beyond 745 less than 1e-323 of a Laplace distribution.
MOST = 2.0**63
GAUSSIAN_REACH, LAPLACE_REACH = 40.0, 745.0


# The functions of OpenDP's library that make, apply and free, by name.
Library = dict[str, Callable[..., Any]]

# What the wrappers are expected to declare: arguments by kind. All return an `FfiResult`.
# `as_object` copies a slice of numbers into an object; `as_slice` says where an object's lie.
DECLARED = {
    "as_object": ("opendp_data__slice_as_object", ("pointer", "text")),
    "as_slice": ("opendp_data__object_as_slice", ("pointer",)),
    "invoke": ("opendp_core__measurement_invoke", ("pointer", "pointer")),
    "map": ("opendp_core__measurement_map", ("pointer", "pointer")),
    "free_object": ("opendp_data__object_free", ("pointer",)),
    "free_slice": ("opendp_data__slice_free", ("pointer",)),
}
SLICE_FIELDS = [("ptr", ctypes.c_void_p), ("len", ctypes.c_size_t)]
RESULT_FIELDS = {"tag": ctypes.c_uint32, "Ok": ctypes.c_void_p}


class Kind(NamedTuple):
    """The numbers of a vector, as NumPy and as OpenDP call them."""

    dtype: Any
    vector: bytes
    atom: Any


FLOATS = Kind(np.float64, b"Vec<f64>", float)
WHOLE = Kind(np.int64, b"Vec<i64>", "i64")


class Sampler:
    """One measurement of OpenDP for vectors of `dim` numbers.

    `weight` times what its map says is what a release costs.
    """

    def __init__(self, measurement: Any, dim: int, weight: float, kind: Kind) -> None:
        self._measurement, self._dim, self._weight = measurement, dim, weight
        self._kind = kind
        self._library = _library(measurement, dim, kind)
        self._address = ctypes.cast(measurement, ctypes.c_void_p).value
        self._zeros = np.zeros(dim, dtype=kind.dtype)
        self._last = (-1.0, 0.0)  # a shift and its cost: most releases have the last one's shift

    def cost(self, shift: float) -> float:
        """What OpenDP proves for neighbours this far apart."""
        known, cost = self._last
        if shift != known:
            cost = self._weight * self._map(shift)
            self._last = (shift, cost)
        return cost

    def _map(self, shift: float) -> float:
        if self._library is None:
            return float(self._measurement.map(float(shift)))
        out, given = np.empty(1), np.array([shift], dtype=np.float64)
        _apply(self._library, self._library["map"], self._address, given, NUMBER, out)
        return float(out[0])

    def draw(self, value: Vector) -> Vector:
        """The value with noise."""
        if value.shape != (self._dim,):
            raise ValueError(
                f"a sampler for {self._dim} numbers was given an array of shape {value.shape}"
            )
        if self._library is None:
            return np.array(self._measurement(value.tolist()), dtype=self._kind.dtype)
        out = np.empty(self._dim, dtype=self._kind.dtype)
        given = np.ascontiguousarray(value, dtype=self._kind.dtype)
        _apply(self._library, self._library["invoke"], self._address, given, self._kind.vector, out)
        return out

    def draw_whole(self) -> list[int]:
        """Noise alone, in whole numbers."""
        if self._kind is not WHOLE:
            raise ValueError("a sampler of floats has no whole numbers")
        numbers: list[int] = self.draw(self._zeros).tolist()
        return numbers


def _apply(
    library: Library,
    function: Any,
    address: int | None,
    given: NDArray[Any],
    kind: bytes,
    out: NDArray[Any],
) -> None:
    """out = function(measurement, given)."""
    from opendp._lib import FfiSlice

    numbers = FfiSlice(given.ctypes.data, given.size)
    argument = _unwrap(library["as_object"](ctypes.addressof(numbers), kind))
    try:
        result = _unwrap(function(address, argument))
        try:
            where = _unwrap(library["as_slice"](result))
            held = FfiSlice.from_address(where)
            length, start = held.len, held.ptr
            if length == out.size:
                ctypes.memmove(out.ctypes.data, start, out.nbytes)
            library["free_slice"](where)
        finally:
            library["free_object"](result)
    finally:
        library["free_object"](argument)
    if length != out.size:
        raise AssertionError(f"OpenDP returned {length} numbers, not {out.size}")


def _unwrap(result: Any) -> Any:
    if result.tag != 0:
        from opendp._lib import unwrap

        unwrap(result, ctypes.c_void_p)  # raises what OpenDP has to say
    return result.payload.Ok


_found: list[Library | None] = []


def _library(measurement: Any, dim: int, kind: Kind) -> Library | None:
    """The library's functions, or None if this version's wrappers call them in another way."""
    if not _found:
        _found.append(_look(measurement, dim, kind))
    return _found[0]


def _look(measurement: Any, dim: int, kind: Kind) -> Library | None:
    import opendp._lib

    _lib: Any = opendp._lib
    # The wrappers declare a function when they call it. What is drawn here is never used.
    measurement.map(1.0)
    measurement([kind.dtype(0).item()] * dim)
    result = dict(_lib.FfiResult._fields_)
    payload = dict(getattr(result.get("payload"), "_fields_", ()))
    same = list(_lib.FfiSlice._fields_) == SLICE_FIELDS
    same &= {"tag": result.get("tag"), "Ok": payload.get("Ok")} == RESULT_FIELDS
    found: Library = {}
    for name, (symbol, kinds) in DECLARED.items():
        declared = getattr(_lib.lib, symbol, None)
        arguments = getattr(declared, "argtypes", None) or ()
        same &= getattr(declared, "restype", None) is _lib.FfiResult
        same &= tuple(map(_kind_of, arguments)) == kinds
        if not same:
            return None
        plain = (ctypes.c_void_p if each == "pointer" else ctypes.c_char_p for each in kinds)
        # A function of our own: the wrappers set the types of theirs again and again.
        found[name] = ctypes.CFUNCTYPE(_lib.FfiResult, *plain)((symbol, _lib.lib))
    return found


def _kind_of(argument: Any) -> str:
    if argument is ctypes.c_char_p:
        return "text"
    return "pointer" if hasattr(argument, "contents") else "other"


@lru_cache(maxsize=64)
def _space(dim: int, kind: Kind) -> tuple[Any, Any, Any]:
    """OpenDP's vectors of this size and their L1 and L2 distances: these take the longest to
    make."""
    # These modules, not the prelude: it imports scikit-learn and polars where they are installed.
    from opendp.domains import atom_domain, vector_domain
    from opendp.metrics import l1_distance, l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    atom = atom_domain(T=float, nan=False) if kind is FLOATS else atom_domain(T=kind.atom)
    return vector_domain(atom, size=dim), l1_distance(T=float), l2_distance(T=float)


@lru_cache(maxsize=256)
def gaussian(dim: int, scale: float, exponent: int | None = None) -> Sampler:
    """Gaussian noise of this standard deviation, on multiples of 2^exponent or in whole numbers.

    Costs are μ²: twice the ρ that OpenDP proves.
    """
    from opendp.measurements import make_gaussian

    kind = _kind(scale, exponent, GAUSSIAN_REACH)
    space, _l1, l2 = _space(dim, kind)
    return Sampler(make_gaussian(space, l2, scale, k=exponent), dim, 2.0, kind)


@lru_cache(maxsize=256)
def laplace(dim: int, scale: float, exponent: int | None = None) -> Sampler:
    """Laplace noise of this scale, on multiples of 2^exponent or in whole numbers. Costs are ε."""
    from opendp.measurements import make_laplace

    kind = _kind(scale, exponent, LAPLACE_REACH)
    space, l1, _l2 = _space(dim, kind)
    return Sampler(make_laplace(space, l1, scale, k=exponent), dim, 1.0, kind)


def _kind(scale: float, exponent: int | None, reach: float) -> Kind:
    if exponent is not None:
        return FLOATS
    if not scale * reach < MOST:
        raise NoiseError(
            f"noise of {scale:.3g} steps of the grid might not fit 64 bits: nothing released; take "
            "a larger epsilon, or Gaussian noise"
        )
    return WHOLE


# The chance of the true end is this much below what a claim allows: OpenDP rounds its costs upwards.
RESPONSE_SLACK = 1e-12


class Answers:
    """OpenDP's randomised response of one bit."""

    def __init__(self, measurement: Any) -> None:
        self._measurement = measurement
        self.cost = float(measurement.map(1))  # what OpenDP proves: ε

    def draw(self, bit: bool) -> bool:
        """The bit, or the other one."""
        return bool(self._measurement(bit))


@lru_cache(maxsize=64)
def response(scale: float) -> Answers:
    """Randomised response with a true answer in (1 + 1/scale)/2 of all cases."""
    from opendp.measurements import make_randomized_response_bool
    from opendp.mod import enable_features

    enable_features("contrib")
    return Answers(make_randomized_response_bool(0.5 * (1 + 1 / scale) * (1 - RESPONSE_SLACK)))


def one_of(number: int, count: int) -> bool:
    """True in `number` of `count` cases, exactly, by a lot of the system's."""
    if not 0 <= number <= count:
        raise NoiseError("a value lies outside its range: nothing released")
    return secrets.randbelow(count) < number
