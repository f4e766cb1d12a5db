// Four doubles side by side, with the same bits at every register width.
//
// Every other header starts from here. All of them are compiled once for each instruction set, into
// a namespace of its own (DPB_ARCH), so that no function compiled for a newer processor can be the
// copy that the linker keeps for everyone. For the same reason nothing here uses std::.
// Multiply-adds are rounded twice (-ffp-contract=off): the oldest supported processor has no fused ones.
#pragma once
#include <stddef.h>
#include <stdint.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define DPB_INLINE inline __attribute__((always_inline))
#define DPB_CALL __attribute__((noinline))  // large or rare: one copy, called
#define DPB_UNROLL _Pragma("GCC unroll 8")

namespace dpb {
typedef int64_t i64;
typedef uint64_t u64;
typedef uint32_t u32;
typedef __int128 whole;  // sums of private items, in units of the grid
typedef unsigned __int128 unsigned_whole;

namespace DPB_ARCH {

typedef double four __attribute__((vector_size(32)));
typedef double four_anywhere __attribute__((vector_size(32), aligned(8)));
typedef u64 word4 __attribute__((vector_size(32)));
// Twice as many, for long chains of operations that would wait for each other.
typedef double eight __attribute__((vector_size(64)));
typedef u64 word8 __attribute__((vector_size(64)));
template <class V> struct Words_;
template <> struct Words_<four> {
    typedef word4 type;
};
template <> struct Words_<eight> {
    typedef word8 type;
};
template <class V> using WordsOf = typename Words_<V>::type;

DPB_INLINE double larger(double a, double b) { return a > b ? a : b; }
DPB_INLINE double smaller(double a, double b) { return a < b ? a : b; }
DPB_INLINE double magnitude(double a) { return __builtin_fabs(a); }
DPB_INLINE double root(double x) { return __builtin_sqrt(x); }
DPB_INLINE bool is_finite(double x) { return x - x == 0; }
DPB_INLINE int lowest_bit(u64 x) { return __builtin_ctzll(x); }
DPB_INLINE int bit_length(u64 x) { return x ? 64 - __builtin_clzll(x) : 0; }

DPB_INLINE four splat(double x) { return four{x, x, x, x}; }
DPB_INLINE four load(const double* p) { return *(const four_anywhere*)p; }
DPB_INLINE void store(double* p, four v) { *(four_anywhere*)p = v; }
template <class V> DPB_INLINE WordsOf<V> bits_of(V v) { return (WordsOf<V>)v; }
DPB_INLINE four from_bits(word4 v) { return (four)v; }
DPB_INLINE eight from_bits(word8 v) { return (eight)v; }
template <class V> DPB_INLINE auto first_half(V v) { return __builtin_shufflevector(v, v, 0, 1, 2, 3); }
template <class V> DPB_INLINE auto second_half(V v) { return __builtin_shufflevector(v, v, 4, 5, 6, 7); }
template <class V> DPB_INLINE auto joined(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
}
DPB_INLINE word4 splat_word(u64 x) { return word4{x, x, x, x}; }
DPB_INLINE double add_up(four v) { return (v[0] + v[2]) + (v[1] + v[3]); }

// A bit for each lane of a mask.
#if defined(__AVX__)
DPB_INLINE u64 lane_bits(word4 mask) { return (u64)_mm256_movemask_pd((__m256d)mask); }
#else
DPB_INLINE u64 lane_bits(word4 mask) {
    return (mask[0] & 1) | (mask[1] & 2) | (mask[2] & 4) | (mask[3] & 8);
}
#endif
#if defined(__AVX__)
DPB_INLINE four root(four a) { return (four)_mm256_sqrt_pd((__m256d)a); }
DPB_INLINE four larger(four a, four b) { return (four)_mm256_max_pd((__m256d)a, (__m256d)b); }
#else
DPB_INLINE four root(four a) { return four{root(a[0]), root(a[1]), root(a[2]), root(a[3])}; }
DPB_INLINE four larger(four a, four b) { return a > b ? a : b; }
#endif

// The products of the low halves of each word.
#if defined(__AVX2__)
DPB_INLINE word4 times32(word4 a, word4 b) {
    return (word4)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
#else
DPB_INLINE word4 times32(word4 a, word4 b) { return (a & 0xffffffffull) * (b & 0xffffffffull); }
#endif
#if defined(__AVX512F__)
DPB_INLINE eight root(eight a) { return (eight)_mm512_maskz_sqrt_pd(255, (__m512d)a); }
DPB_INLINE word8 times32(word8 a, word8 b) { return (word8)_mm512_maskz_mul_epu32(255, (__m512i)a, (__m512i)b); }
#else
DPB_INLINE eight root(eight a) { return joined(root(first_half(a)), root(second_half(a))); }
DPB_INLINE word8 times32(word8 a, word8 b) {
    return joined(times32(first_half(a), first_half(b)), times32(second_half(a), second_half(b)));
}
#endif

template <class V> DPB_INLINE V if_set(WordsOf<V> mask, V a, V b) {
    WordsOf<V> x = bits_of(a), y = bits_of(b);
    return from_bits(y ^ ((x ^ y) & mask));
}

// Four rows become four columns.
DPB_INLINE void transpose(four& a, four& b, four& c, four& d) {
    four p = __builtin_shufflevector(a, b, 0, 4, 2, 6);
    four q = __builtin_shufflevector(a, b, 1, 5, 3, 7);
    four r = __builtin_shufflevector(c, d, 0, 4, 2, 6);
    four s = __builtin_shufflevector(c, d, 1, 5, 3, 7);
    a = __builtin_shufflevector(p, r, 0, 1, 4, 5);
    b = __builtin_shufflevector(q, s, 0, 1, 4, 5);
    c = __builtin_shufflevector(p, r, 2, 3, 6, 7);
    d = __builtin_shufflevector(q, s, 2, 3, 6, 7);
}

// How long a vector is, and how far apart the rows of a matrix are: padded with zeros to whole fours.
struct Size {
    int n, s;
    DPB_INLINE explicit Size(i64 size) : n((int)size), s((int)((size + 3) / 4 * 4)) {}
    DPB_INLINE i64 square() const { return (i64)n * s; }
};

// All numbers of a bandit lie in one block that its owner gives and frees: copying the block copies
// the bandit's state. A block without memory only counts how much is needed.
struct Block {
    char* at;
    size_t used;
    template <class T> DPB_INLINE T* take(i64 count) {
        T* here = at ? (T*)(at + used) : nullptr;
        used += ((size_t)count * sizeof(T) + 63) / 64 * 64;
        return here;
    }
    DPB_INLINE double* vector(Size z) { return take<double>(z.s); }
    DPB_INLINE double* matrix(Size z) { return take<double>(z.square()); }
};

}  // namespace DPB_ARCH
}  // namespace dpb
