"""Vectors of a few doubles inside kernels, one register each.

The compiler does not dare to vectorise most of what bandits do: sums would be added up in another order, and it cannot
know that two arrays do not overlap. Here a kernel says itself which numbers are handled side by side. Every lane does the
arithmetic that a scalar would do, multiply-adds are rounded once, so results do not depend on how wide the registers are.
Nothing is checked: whoever loads or stores must know that the array, in memory order, goes on for as many entries.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import cgutils, types

intrinsic: Any = extending.intrinsic  # what it makes takes one argument less than it is written with

# Doubles in a vector. Eight would fill AVX-512's registers, but Zen 4 halves them again, and slates of ten arms fill three of these.
WIDTH = 4


class Lanes(types.Type):
    """The type of a vector in a kernel."""

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__(name=f"lanes{width}")


@extending.register_model(Lanes)
class _LanesModel(extending.models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Lanes) -> None:
        super().__init__(manager, kind, ir.VectorType(ir.DoubleType(), kind.width))


WIDE, FOUR = Lanes(WIDTH), Lanes(4)


def _entry(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """The address of entry `at` of an array in memory order."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


def _load(lanes: Lanes) -> Any:
    @intrinsic
    def load(typing: Any, array: Any, at: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = _entry(context, builder, signature.args[0], args[0], args[1])
            place = builder.bitcast(place, context.get_value_type(lanes).as_pointer())
            return builder.load(place, align=8)

        return lanes(array, types.intp), code

    return load


load, load_four = _load(WIDE), _load(FOUR)


@intrinsic
def store(typing: Any, array: Any, at: Any, value: Any) -> Any:
    """array.flat[at:] = value"""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _entry(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], builder.bitcast(place, args[2].type.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), code


def _splat(lanes: Lanes) -> Any:
    @intrinsic
    def splat(typing: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = context.get_value_type(lanes)
            one = builder.insert_element(ir.Constant(kind, ir.Undefined), args[0], ir.Constant(ir.IntType(32), 0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes.width), [0] * lanes.width)
            return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros)

        return lanes(types.float64), code

    return splat


splat, splat_four = _splat(WIDE), _splat(FOUR)


def _elementwise(make: Any, count: int) -> Any:
    def signature_of(*kinds: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return make(builder, *args)

        return kinds[0](*kinds), code

    if count == 1:
        return intrinsic(lambda typing, a: signature_of(a))
    if count == 2:
        return intrinsic(lambda typing, a, b: signature_of(a, b))
    if count == 3:
        return intrinsic(lambda typing, a, b, c: signature_of(a, b, c))
    return intrinsic(lambda typing, a, b, c, d: signature_of(a, b, c, d))


def _called(name: str) -> Any:
    def make(builder: Any, *args: Any) -> Any:
        kind = args[0].type
        suffix = f"v{kind.count}f64" if isinstance(kind, ir.VectorType) else "f64"
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(kind, [kind] * len(args)), f"llvm.{name}.{suffix}"
        )
        return builder.call(function, args)

    return make


# All of these work on doubles too.
fma = _elementwise(_called("fma"), 3)  # a·b + c, rounded once
root = _elementwise(_called("sqrt"), 1)
larger = _elementwise(_called("maxnum"), 2)
plus = _elementwise(lambda builder, a, b: builder.fadd(a, b), 2)
minus = _elementwise(lambda builder, a, b: builder.fsub(a, b), 2)
times = _elementwise(lambda builder, a, b: builder.fmul(a, b), 2)
over = _elementwise(lambda builder, a, b: builder.fdiv(a, b), 2)
negative = _elementwise(lambda builder, a: builder.fneg(a), 1)
magnitude = _elementwise(_called("fabs"), 1)
# x if a < b, else y
if_less = _elementwise(lambda builder, a, b, x, y: builder.select(builder.fcmp_ordered("<", a, b), x, y), 4)


def _like(kind: Any, number: float | int) -> Any:
    """A constant of a type: the same in every lane."""
    return ir.Constant(kind, [number] * kind.count) if isinstance(kind, ir.VectorType) else ir.Constant(kind, number)


def _parts(builder: Any, x: Any) -> Any:
    """The bits of a positive normal number, and these with √½'s bits taken off: what is above the mantissa there is the
    exponent for which the fraction lies between √½ and √2."""
    integer = ir.IntType(64)
    kind = ir.VectorType(integer, x.type.count) if isinstance(x.type, ir.VectorType) else integer
    bits = builder.bitcast(x, kind)
    return kind, bits, builder.add(bits, _like(kind, 0x3FF0000000000000 - 0x3FE6A09E667F3BCD))


def _exponent(builder: Any, x: Any) -> Any:
    kind, _bits, shifted = _parts(builder, x)
    biased = builder.or_(
        builder.lshr(shifted, _like(kind, 52)), _like(kind, 0x4330000000000000)
    )  # 2⁵² + it, as a float
    return builder.fsub(builder.bitcast(biased, x.type), _like(x.type, 2.0**52 + 1023.0))


def _fraction(builder: Any, x: Any) -> Any:
    kind, bits, shifted = _parts(builder, x)
    power = builder.sub(builder.and_(shifted, _like(kind, -(1 << 52))), _like(kind, 0x3FF0000000000000))
    return builder.bitcast(builder.sub(bits, power), x.type)


# x = fraction·2^exponent with √½ ≤ fraction < √2, for positive normal numbers.
exponent, fraction = _elementwise(_exponent, 1), _elementwise(_fraction, 1)


@intrinsic
def like(typing: Any, lanes: Any, value: Any) -> Any:
    """The number in every lane, as many as `lanes` has: kernels that use it work on vectors and on single numbers."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        if not isinstance(kind, ir.VectorType):
            return args[1]
        one = builder.insert_element(ir.Constant(kind, ir.Undefined), args[1], ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
        return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros)

    return lanes(lanes, types.float64), code


@intrinsic
def add_up(typing: Any, four: Any) -> Any:
    """The sum of four lanes, (0 + 2) + (1 + 3)."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one, two, three, four = (builder.extract_element(args[0], ir.Constant(ir.IntType(32), i)) for i in range(4))
        return builder.fadd(builder.fadd(one, three), builder.fadd(two, four))

    return types.float64(four), code


@intrinsic
def transpose(
    typing: Any, source: Any, first: Any, second: Any, third: Any, fourth: Any, into: Any, at: Any, stride: Any
) -> Any:
    """Four runs of four numbers, beginning at these entries of `source`, become four columns of `into`."""
    kinds = (source, *[types.intp] * 4, into, types.intp, types.intp)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(FOUR)

        def mix(a: Any, b: Any, order: list[int]) -> Any:
            return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), 4), order))

        rows = []
        for place in args[1:5]:
            place = _entry(context, builder, signature.args[0], args[0], place)
            rows.append(builder.load(builder.bitcast(place, kind.as_pointer()), align=8))
        low = [mix(rows[0], rows[1], [0, 4, 2, 6]), mix(rows[2], rows[3], [0, 4, 2, 6])]
        high = [mix(rows[0], rows[1], [1, 5, 3, 7]), mix(rows[2], rows[3], [1, 5, 3, 7])]
        front, back = [0, 1, 4, 5], [2, 3, 6, 7]
        columns = [
            mix(low[0], low[1], front),
            mix(high[0], high[1], front),
            mix(low[0], low[1], back),
            mix(high[0], high[1], back),
        ]
        at = args[6]
        for column in columns:
            place = _entry(context, builder, signature.args[5], args[5], at)
            builder.store(column, builder.bitcast(place, kind.as_pointer()), align=8)
            at = builder.add(at, args[7])
        return context.get_dummy_value()

    return types.void(*kinds), code


@intrinsic
def four_of(typing: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Four numbers as a vector."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.Constant(context.get_value_type(FOUR), ir.Undefined)
        for i, number in enumerate(args):
            vector = builder.insert_element(vector, number, ir.Constant(ir.IntType(32), i))
        return vector

    return FOUR(*[types.float64] * 4), code


def _lane(i: int) -> Any:
    @intrinsic
    def lane(typing: Any, four: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.extract_element(args[0], ir.Constant(ir.IntType(32), i))

        return types.float64(four), code

    return lane


lane_0, lane_1, lane_2, lane_3 = _lane(0), _lane(1), _lane(2), _lane(3)


@intrinsic
def lowest_bit(typing: Any, bits: Any) -> Any:
    """The number of the lowest bit that is set, from 0; `bits` is not 0."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), code
