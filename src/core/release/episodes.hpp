// Episodes (Azize & Basu 2024): one that ends when det A has grown by a factor shows its own sum, once.
// Contexts alone decide when, so it is public; between releases arms are picked with the last A⁻¹.
#pragma once
#include "../fields.hpp"
#include "../fixed.hpp"
#include "../random.hpp"

namespace dpb::DPB_ARCH {
struct EpisodesRelease : OneByOne {
    static constexpr bool is_whole = true;
    Size z;
    whole* sum;
    double *carry, *grown;  // noisy sums so far; growth of log det A since the last release
    i64* item;
    EpisodesRelease(Block& b, const Spec& spec) : OneByOne{spec}, z(spec.dim) {
        sum = b.take<whole>(z.n);
        carry = b.vector(z);
        grown = b.take<double>(1);
        item = b.take<i64>(z.s);
    }
    DPB_INLINE double add(i64, double factor, const double* u, double quadratic, Node& pending, double*) {
        to_grid(z, factor, u, item);
        for (int i = 0; i < z.n; i++) sum[i] += item[i];
        clear(z, item);
        *grown += log1(1 + quadratic);
        // det A can double exactly, and rounding must not decide whether that was enough.
        if (*grown < o.growth * (1 - 1e-9)) return NO_RELEASE;
        *grown = 0;
        pending.wide = true;
        for (int i = 0; i < z.n; i++) {
            pending.wides[i] = sum[i];
            sum[i] = 0;
        }
        return o.multipliers[1] * o.sensitivity;
    }
    DPB_INLINE bool goes_on(double quadratic) const {
        // So close to the end it may be the end: then the careful way is taken.
        return quadratic >= 0 && *grown + log1(1 + quadratic) < o.growth * (1 - 2e-9);
    }
    DPB_INLINE void publish(i64, const double* noisy, double* prefix) {
        for (int i = 0; i < z.s; i++) {
            carry[i] += i < z.n ? noisy[i] : 0;
            prefix[i] = carry[i];
        }
    }
    void base(double* prefix) const { copy(carry, prefix, z.s); }
    void fields(Fields& f) {
        f.wholes("episode_sum_low", "episode_sum_high", sum, 1, z.n);
        f.vector("carry", carry, z.n);
        f.real("grown", grown);
    }
};
}  // namespace dpb::DPB_ARCH
