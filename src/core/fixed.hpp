// Private items in whole numbers of 2^−GRID: their sums are exact, in any order, at any horizon.
// What rounding an item does to it happens once, when it enters, so it is part of the item.
#pragma once
#include "interface.hpp"
#include "linalg.hpp"

namespace dpb::DPB_ARCH {
constexpr int GRID = 40;
constexpr double STEP = 0x1p-40;
typedef i64 step4 __attribute__((vector_size(32)));

// out = the whole numbers nearest to factor·a·2^GRID, for |factor·a| < 2^(51 − GRID): adding
// 1.5·2^52 rounds, and leaves the number in the low bits.
DPB_INLINE void to_grid(Size z, double factor, const double* a, i64* out) {
    const four magic = splat(0x1.8p52);
    for (int i = 0; i < z.s; i += 4) {
        four scaled = load(a + i) * splat(factor) * splat(0x1p40);
        word4 words = bits_of(scaled + magic) - bits_of(magic);
        __builtin_memcpy(out + i, &words, 32);
    }
}
DPB_INLINE i64 to_grid(double a) {
    double rounded = a * 0x1p40 + 0x1.8p52;
    i64 bits, zero;
    const double magic = 0x1.8p52;
    __builtin_memcpy(&bits, &rounded, 8);
    __builtin_memcpy(&zero, &magic, 8);
    return bits - zero;
}
DPB_INLINE double from_grid(whole a) {
    i64 low = (i64)a;  // converting 128 bits is a call into the compiler's library
    return (low == a ? (double)low : (double)a) * STEP;
}
// Noise of any size that is to stay in a whole sum (a simulated pan-private node).
DPB_INLINE whole large_to_grid(double a) {
    double scaled = a * 0x1p40;
    return magnitude(scaled) < 0x1p62 ? (whole)__builtin_rint(scaled) : (whole)scaled;
}
// A release of one vector at a time whose noise is drawn when it is shown, not before.
struct OneByOne {
    const Spec& o;
    i64 numbers() const { return o.dim; }
    i64 starts(i64, i64*) const { return 0; }
    void begin(i64, const whole*) {}
};
// The clean numbers of a release: in 64 bits while they surely fit, which vectors can add.
struct Node {
    i64* steps;
    whole* wides;
    bool wide;
    DPB_INLINE void show(i64 count, double* out) const {
        if (wide)
            for (i64 i = 0; i < count; i++) out[i] = from_grid(wides[i]);
        else
            for (i64 i = 0; i < count; i += 4) {  // both have room for whole fours
                step4 some;
                __builtin_memcpy(&some, steps + i, 32);
                store(out + i, __builtin_convertvector(some, four) * splat(STEP));
            }
    }
    const whole* widen(i64 count) {
        for (i64 i = 0; !wide && i < count; i++) wides[i] = steps[i];
        wide = true;
        return wides;
    }
};
DPB_INLINE void add_steps(Size z, i64* total, const i64* more) {
    for (int i = 0; i < z.s; i += 4) {
        word4 sum, other;
        __builtin_memcpy(&sum, total + i, 32);
        __builtin_memcpy(&other, more + i, 32);
        sum += other;
        __builtin_memcpy(total + i, &sum, 32);
    }
}
DPB_INLINE void copy(Size z, const i64* from, i64* to) {
    for (int i = 0; i < z.s; i += 4) {
        step4 some;
        __builtin_memcpy(&some, from + i, 32);
        __builtin_memcpy(to + i, &some, 32);
    }
}
DPB_INLINE void clear(Size z, i64* steps) {
    const step4 none = {0, 0, 0, 0};
    for (int i = 0; i < z.s; i += 4) __builtin_memcpy(steps + i, &none, 32);
}

// a·share/2^62, rounded to the nearest.
DPB_INLINE whole share_of(whole a, u64 share) {
    bool negative = a < 0;
    unsigned_whole size = negative ? -(unsigned_whole)a : (unsigned_whole)a;
    unsigned_whole low = (unsigned_whole)(u64)size * share + ((unsigned_whole)1 << 61);
    unsigned_whole high = (unsigned_whole)(u64)(size >> 64) * share + (low >> 64);
    whole found = (whole)((high << 2) | ((u64)low >> 62));
    return negative ? -found : found;
}
}  // namespace dpb::DPB_ARCH
