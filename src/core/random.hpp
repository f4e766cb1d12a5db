// Random numbers for simulations, addressed instead of drawn: a number is a function of (key, stream,
// index), the same on every core, in every order, before and after a save. Philox4x32-10 (Salmon et
// al. 2011); log, sine and cosine are polynomials (fdlibm's), so that bits are the same everywhere.
// Nothing here may make noise that anyone outside a simulation sees.
#pragma once
#include "vector.hpp"

namespace dpb {
namespace DPB_ARCH {

struct Words {
    word4 a, b, c, d;  // of each of four counters, four words of 32 bits
};
DPB_INLINE Words philox(u64 key, u64 stream, word4 index) {
    const word4 low = splat_word(0xffffffffull);
    const word4 m0 = splat_word(0xD2511F53ull), m1 = splat_word(0xCD9E8D57ull);
    word4 a = index & low, b = index >> 32;
    word4 c = splat_word(stream & 0xffffffffull), d = splat_word(stream >> 32);
    u32 k0 = (u32)key, k1 = (u32)(key >> 32);
    DPB_UNROLL for (int round = 0; round < 10; round++) {
        word4 p = times32(a, m0), q = times32(c, m1);
        a = (q >> 32) ^ b ^ splat_word(k0);
        b = q & low;
        c = (p >> 32) ^ d ^ splat_word(k1);
        d = p & low;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return Words{a & low, b, c & low, d};
}
DPB_INLINE word4 counters(u64 first) { return splat_word(first) + word4{0, 1, 2, 3}; }

// 64 bits by lot.
DPB_INLINE u64 lot(u64 key, u64 stream, u64 index) {
    Words w = philox(key, stream, splat_word(index));
    return (w.a[0] << 32) ^ w.b[0];
}
// Strictly between 0 and 1: the centre of one of 2⁵² cells.
DPB_INLINE four uniform(word4 high, word4 low) {
    word4 bits = (high << 20) ^ (low >> 12);
    four shifted = from_bits(bits | splat_word(0x3FF0000000000000ull));
    return (shifted - splat(1)) + splat(0x1p-53);
}
// The natural logarithm of positive normal numbers.
DPB_INLINE four log4(four x) {
    word4 bits = bits_of(x);
    word4 shifted = bits + splat_word(0x3FF0000000000000ull - 0x3FE6A09E667F3BCDull);
    four k = from_bits((shifted >> 52) | splat_word(0x4330000000000000ull)) - splat(0x1p52 + 1023);
    word4 power = (shifted & splat_word(0xFFF0000000000000ull)) - splat_word(0x3FF0000000000000ull);
    four f = from_bits(bits - power) - splat(1);
    four s = f / (f + splat(2)), z = s * s;
    four r = z * splat(1.479819860511658591e-01) + splat(1.531383769920937332e-01);
    r = z * r + splat(1.818357216161805012e-01);
    r = z * r + splat(2.222219843214978396e-01);
    r = z * r + splat(2.857142874366239149e-01);
    r = z * r + splat(3.999999999940941908e-01);
    r = z * (z * r + splat(6.666666666666735130e-01));
    four half = splat(0.5) * (f * f);
    four low = s * (half + r) + k * splat(1.90821492927058770002e-10);
    return k * splat(6.93147180369123816490e-01) - ((half - low) - f);
}
DPB_INLINE double log1(double x) { return log4(splat(x))[0]; }
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
DPB_INLINE void circle(four u, four& sine, four& cosine) {
    four shifted = u * splat(4) + splat(0x1.8p52);  // rounds 4u; the quarter is in the lowest bits
    word4 quarter = bits_of(shifted);
    four x = (u - (shifted - splat(0x1.8p52)) * splat(0.25)) * splat(6.283185307179586476925);
    four z = x * x;
    four s = z * splat(1.58969099521155010221e-10) + splat(-2.50507602534068634195e-08);
    s = z * s + splat(2.75573137070700676789e-06);
    s = z * s + splat(-1.98412698298579493134e-04);
    s = z * s + splat(8.33333333332248946124e-03);
    s = z * s + splat(-1.66666666666666324348e-01);
    s = (x * z) * s + x;
    four c = z * splat(-1.13596475577881948265e-11) + splat(2.08757232129817482790e-09);
    c = z * c + splat(-2.75573143513906633035e-07);
    c = z * c + splat(2.48015872894767294178e-05);
    c = z * c + splat(-1.38888888888741095749e-03);
    c = z * c + splat(4.16666666666666019037e-02);
    c = (z * z) * c + (z * splat(-0.5) + splat(1));
    word4 odd = splat_word(0) - (quarter & splat_word(1));
    word4 sign_of_sine = (quarter & splat_word(2)) << 62;
    word4 sign_of_cosine = ((quarter + splat_word(1)) & splat_word(2)) << 62;
    sine = from_bits(bits_of(if_set(odd, c, s)) ^ sign_of_sine);
    cosine = from_bits(bits_of(if_set(odd, s, c)) ^ sign_of_cosine);
}
// out = value + scale·(normal numbers of this stream). Eight at a time: out has room for a multiple
// of eight. value may be null.
DPB_CALL inline void add_normals(u64 key, u64 stream, i64 count, double scale, const double* value,
                                 double* out) {
    for (i64 i = 0; i < count; i += 8) {
        Words w = philox(key, stream, counters((u64)i / 2));
        four size = root(splat(-2) * log4(uniform(w.a, w.b))), s, c;
        circle(uniform(w.c, w.d), s, c);
        s = splat(scale) * (size * s);
        c = splat(scale) * (size * c);
        if (value) {
            s = load(value + i) + s;
            if (i + 4 < count) c = load(value + i + 4) + c;
        }
        store(out + i, s);
        store(out + i + 4, c);
    }
}
// Uniform numbers of this stream, eight at a time.
DPB_CALL inline void uniforms(u64 key, u64 stream, i64 count, double* out) {
    for (i64 i = 0; i < count; i += 8) {
        Words w = philox(key, stream, counters((u64)i / 2));
        four even = uniform(w.a, w.b), odd = uniform(w.c, w.d);
        store(out + i, __builtin_shufflevector(even, odd, 0, 4, 1, 5));
        store(out + i + 4, __builtin_shufflevector(even, odd, 2, 6, 3, 7));
    }
}
DPB_INLINE double one_uniform(u64 key, u64 stream) {
    Words w = philox(key, stream, splat_word(0));
    return uniform(w.a, w.b)[0];
}
DPB_INLINE double one_normal(u64 key, u64 stream) {
    double eight[8];
    add_normals(key, stream, 1, 1, nullptr, eight);
    return eight[0];
}
}  // namespace DPB_ARCH
}  // namespace dpb
