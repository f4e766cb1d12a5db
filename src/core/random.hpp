// Random numbers for simulations, addressed instead of drawn: a number is a function of (key, stream,
// index), the same on every core, in every order, before and after a save. Philox4x32-10 (Salmon et
// al. 2011); log, sine and cosine are polynomials (fdlibm's), so that bits are the same everywhere.
// Nothing here may make noise that anyone outside a simulation sees.
#pragma once
#include "vector.hpp"

namespace dpb::DPB_ARCH {

template <class W> struct Words {
    W a, b, c, d;  // of each of several counters, four words of 32 bits
};
template <class W> DPB_INLINE Words<W> philox(u64 key, u64 stream, W index) {
    const u64 low = 0xffffffffull;
    const W none = index ^ index, m0 = none + 0xD2511F53ull, m1 = none + 0xCD9E8D57ull;
    W a = index, b = index >> 32, c = none + (stream & low), d = none + (stream >> 32);
    u32 k0 = (u32)key, k1 = (u32)(key >> 32);
    // Products look at low halves alone: what is in the high ones is taken off once, at the end.
    _Pragma("GCC unroll 10") for (int round = 0; round < 10; round++) {
        W p = times32(a, m0), q = times32(c, m1);
        a = (q >> 32) ^ b ^ (none + k0);
        b = q;
        c = (p >> 32) ^ d ^ (none + k1);
        d = p;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return Words<W>{a & low, b & low, c & low, d & low};
}
DPB_INLINE word4 counters(u64 first) { return splat_word(first) + word4{0, 1, 2, 3}; }

// 64 bits by lot.
DPB_INLINE u64 lot(u64 key, u64 stream, u64 index) {
    auto w = philox(key, stream, splat_word(index));
    return (w.a[0] << 32) ^ w.b[0];
}
// Strictly between 0 and 1: the centre of one of 2⁵² cells.
template <class W> DPB_INLINE auto uniform(W high, W low) {
    return (from_bits((high << 20 ^ low >> 12) | 0x3FF0000000000000ull) - 1.0) + 0x1p-53;
}
// The natural logarithm of positive normal numbers.
template <class V> DPB_INLINE V log_of(V x) {
    auto bits = bits_of(x), shifted = bits + (0x3FF0000000000000ull - 0x3FE6A09E667F3BCDull);
    V k = from_bits(shifted >> 52 | 0x4330000000000000ull) - (0x1p52 + 1023);
    auto power = (shifted & 0xFFF0000000000000ull) - 0x3FF0000000000000ull;
    V f = from_bits(bits - power) - 1.0;
    V s = f / (f + 2.0), z = s * s;
    V r = z * 1.479819860511658591e-01 + 1.531383769920937332e-01;
    r = z * r + 1.818357216161805012e-01;
    r = z * r + 2.222219843214978396e-01;
    r = z * r + 2.857142874366239149e-01;
    r = z * r + 3.999999999940941908e-01;
    r = z * (z * r + 6.666666666666735130e-01);
    V half = 0.5 * (f * f);
    V low = s * (half + r) + k * 1.90821492927058770002e-10;
    return k * 6.93147180369123816490e-01 - ((half - low) - f);
}
DPB_INLINE double log1(double x) { return log_of(splat(x))[0]; }
// e^x for x ≤ 0: halved until it is small, a series, and squared back.
DPB_CALL inline double exp1(double x) {
    if (!(x > -700)) return 0;
    int halvings = 0;
    for (; x < -0.0625; halvings++) x *= 0.5;
    double sum = 1, term = 1;
    for (int k = 1; k < 12; k++) sum += term *= x / k;
    for (; halvings; halvings--) sum *= sum;
    return sum;
}

// Sine and cosine of 2πu, 0 < u < 1.
template <class V> DPB_INLINE void circle(V u, V& sine, V& cosine) {
    V shifted = u * 4.0 + 0x1.8p52;  // rounds 4u; the quarter is in the lowest bits
    auto quarter = bits_of(shifted);
    V x = (u - (shifted - 0x1.8p52) * 0.25) * 6.283185307179586476925;
    V z = x * x;
    V s = z * 1.58969099521155010221e-10 + -2.50507602534068634195e-08;
    s = z * s + 2.75573137070700676789e-06;
    s = z * s + -1.98412698298579493134e-04;
    s = z * s + 8.33333333332248946124e-03;
    s = z * s + -1.66666666666666324348e-01;
    s = (x * z) * s + x;
    V c = z * -1.13596475577881948265e-11 + 2.08757232129817482790e-09;
    c = z * c + -2.75573143513906633035e-07;
    c = z * c + 2.48015872894767294178e-05;
    c = z * c + -1.38888888888741095749e-03;
    c = z * c + 4.16666666666666019037e-02;
    c = (z * z) * c + (z * -0.5 + 1.0);
    auto odd = 0ull - (quarter & 1ull);
    auto sign_of_sine = (quarter & 2ull) << 62, sign_of_cosine = ((quarter + 1ull) & 2ull) << 62;
    sine = from_bits(bits_of(if_set(odd, c, s)) ^ sign_of_sine);
    cosine = from_bits(bits_of(if_set(odd, s, c)) ^ sign_of_cosine);
}
template <class V> struct Pair {
    V first, second;
};
// Two uniform numbers from each counter, and two normal ones from those.
template <class W> DPB_INLINE auto uniform_pairs(u64 key, u64 stream, W index) {
    auto w = philox(key, stream, index);
    return Pair<decltype(from_bits(index))>{uniform(w.a, w.b), uniform(w.c, w.d)};
}
template <class V> DPB_INLINE Pair<V> normal_pairs(Pair<V> given, double scale) {
    V size = root(-2.0 * log_of(given.first)), s, c;
    circle(given.second, s, c);
    return Pair<V>{scale * (size * s), scale * (size * c)};
}
DPB_INLINE word8 more_counters(u64 first) { return joined(counters(first), counters(first + 4)); }

// out = value + scale·(normal numbers of this stream). Eight at a time: out has room for a multiple
// of eight. value may be null.
DPB_CALL inline void add_normals(u64 key, u64 stream, i64 count, double scale, const double* value,
                                 double* out) {
    auto put = [=](i64 at, four drawn) __attribute__((always_inline)) {
        store(out + at, value && at < count ? load(value + at) + drawn : drawn);
    };
    auto put_8 = [=](i64 at, Pair<four> drawn) __attribute__((always_inline)) {
        put(at, drawn.first);
        put(at + 4, drawn.second);
    };
    auto put_16 = [=](i64 at, Pair<eight> drawn) __attribute__((always_inline)) {
        put_8(at, {first_half(drawn.first), first_half(drawn.second)});
        put_8(at + 8, {second_half(drawn.first), second_half(drawn.second)});
    };
    i64 i = 0;
    if (count > 8 && count <= 16)
        return put_16(0, normal_pairs(uniform_pairs(key, stream, more_counters(0)), scale));
    // All uniform numbers first: chains of operations are then so short that a processor works on
    // several at once.
    for (; i + 8 < count; i += 16) {
        auto drawn = uniform_pairs(key, stream, more_counters((u64)i / 2));
        __builtin_memcpy(out + i, &drawn, sizeof drawn);
    }
    for (i = 0; i + 8 < count; i += 16) {
        Pair<eight> drawn;
        __builtin_memcpy(&drawn, out + i, sizeof drawn);
        put_16(i, normal_pairs(drawn, scale));
    }
    if (i < count) put_8(i, normal_pairs(uniform_pairs(key, stream, counters((u64)i / 2)), scale));
}
// Uniform numbers of this stream, eight at a time.
DPB_CALL inline void uniforms(u64 key, u64 stream, i64 count, double* out) {
    for (i64 i = 0; i < count; i += 8) {
        auto w = philox(key, stream, counters((u64)i / 2));
        four even = uniform(w.a, w.b), odd = uniform(w.c, w.d);
        store(out + i, __builtin_shufflevector(even, odd, 0, 4, 1, 5));
        store(out + i + 4, __builtin_shufflevector(even, odd, 2, 6, 3, 7));
    }
}
DPB_INLINE double one_uniform(u64 key, u64 stream) {
    auto w = philox(key, stream, splat_word(0));
    return uniform(w.a, w.b)[0];
}
DPB_INLINE double one_normal(u64 key, u64 stream) {
    double eight[8];
    add_normals(key, stream, 1, 1, nullptr, eight);
    return eight[0];
}
}  // namespace dpb::DPB_ARCH
