// Ridge regression: A⁻¹ by Sherman–Morrison, and A with its rounding errors kept, from which A⁻¹ is
// computed anew now and then. Knows nothing of privacy.
#pragma once
#include "../fields.hpp"
#include "../linalg.hpp"

namespace dpb::DPB_ARCH {
// Contexts are added to A this many at a time: keeping rounding errors then costs little.
constexpr int RECENT = 16;

struct Ridge {
    Size z;
    double strength;
    double *inverse, *gram, *gram_low, *moments, *moments_low, *theta, *step, *recent, *work, *residual;
    i64 *waiting, *age;  // contexts that are in A⁻¹ and not yet in A; updates since the last refresh

    Ridge(Block& b, i64 dim, double lambda) : z(dim), strength(lambda) {
        inverse = b.matrix(z);
        theta = b.vector(z);
        step = b.vector(z);
        recent = b.take<double>(RECENT * z.s);
        waiting = b.take<i64>(1);
        age = b.take<i64>(1);
        moments = b.vector(z);
        moments_low = b.vector(z);
        gram = b.matrix(z);
        gram_low = b.matrix(z);
        work = b.matrix(z);
        residual = b.vector(z);
        if (!b.at) return;
        for (int i = 0; i < z.n; i++) {
            inverse[(i64)i * z.s + i] = 1 / lambda;
            gram[(i64)i * z.s + i] = lambda;
        }
    }
    // A ← A + xxᵀ; leaves A_old⁻¹x in `step` and returns xᵀA_old⁻¹x. x is padded.
    DPB_INLINE double add_context(const double* x) {
        multiply(z, inverse, x, step);
        double quadratic = dot(z, step, x);
        take_square(z, inverse, 1 / (1 + quadratic), step);
        double* row = recent + *waiting * z.s;
        for (int i = 0; i < z.s; i += 4) store(row + i, load(x + i));
        if (++*waiting == RECENT) settle();
        ++*age;
        return quadratic;
    }
    // b ← b + xr and θ with it, right after `add_context`.
    DPB_INLINE void add_reward(const double* x, double reward, double quadratic) {
        double gain = (reward - dot(z, x, theta)) / (1 + quadratic);
        add_kept(z, moments, moments_low, reward, x);
        add_scaled(z, theta, gain, step);
    }
    // A ← λ1 + γ(A − λ1) and b ← γb. A⁻¹ and θ are then those of before: a refresh is due.
    DPB_CALL void fade(double gamma) {
        settle();
        for (i64 i = 0; i < z.square(); i++) {
            gram[i] *= gamma;
            gram_low[i] *= gamma;
        }
        for (int i = 0; i < z.n; i++) gram[(i64)i * z.s + i] += (1 - gamma) * strength;
        for (int i = 0; i < z.s; i++) {
            moments[i] *= gamma;
            moments_low[i] *= gamma;
        }
    }
    // Every 256 updates (2d in high dimension, where a refresh costs as much as that many), or at
    // once when rounding has made A⁻¹ lose its sign.
    DPB_INLINE bool due(double quadratic) const {
        return *age >= (2 * z.n > 256 ? 2 * z.n : 256) || !(quadratic >= 0);
    }
    template <int N> DPB_INLINE void settle_strip(int i, int j, int count) {
        four sum[N];
        DPB_UNROLL for (int v = 0; v < N; v++) sum[v] = splat(0);
        for (int t = 0; t < count; t++) {
            const double* row = recent + (i64)t * z.s;
            DPB_UNROLL for (int v = 0; v < N; v++) sum[v] += splat(row[i]) * load(row + j + 4 * v);
        }
        DPB_UNROLL for (int v = 0; v < N; v++) {
            i64 at = (i64)i * z.s + j + 4 * v;
            add_kept(gram + at, gram_low + at, sum[v]);
        }
    }
    DPB_CALL void settle() {
        int count = (int)*waiting;
        *waiting = 0;
        if (!count) return;
        for (int i = 0; i < z.n; i++) {
            int j = 0;
            for (; j + 12 <= z.s; j += 12) settle_strip<3>(i, j, count);
            for (; j < z.s; j += 4) settle_strip<1>(i, j, count);
        }
    }
    DPB_CALL void refresh_inverse() {
        settle();
        factor(z, gram, gram_low, work);
        invert_factor(z, work, inverse);
        *age = 0;
    }
    // θ from A and b, to nearly full precision: A⁻¹b alone can lose κ² ulps; two steps of refinement
    // with a residual in two doubles leave about κ·2⁻⁵³.
    DPB_CALL void refresh() {
        refresh_inverse();
        for (int i = 0; i < z.s; i++) residual[i] = moments[i] + moments_low[i];
        multiply(z, inverse, residual, theta);
        for (int again = 0; again < 2; again++) {
            for (int i = 0; i < z.s; i += 4) {
                four high = load(moments + i), low = load(moments_low + i);
                for (int k = 0; k < z.n; k++) {
                    i64 at = (i64)k * z.s + i;
                    four entry = load(gram + at), minus = splat(-theta[k]), product = entry * minus;
                    four error = product_error(entry, minus, product);
                    four sum = high + product, back = sum - high;
                    low += ((high - (sum - back)) + (product - back)) + error;
                    low += load(gram_low + at) * minus;
                    high = sum;
                }
                store(residual + i, high + low);
            }
            multiply(z, inverse, residual, step);
            for (int i = 0; i < z.s; i++) theta[i] += step[i];
        }
    }
    void fields(Fields& f, bool with_moments = true) {
        f.matrix("inverse", inverse, z);
        f.matrix("gram", gram, z);
        f.matrix("gram_low", gram_low, z);
        f.table("recent", recent, RECENT, z);
        f.number("waiting", waiting);
        f.number("age", age);
        if (!with_moments) return;
        f.vector("moments", moments, z.n);
        f.vector("moments_low", moments_low, z.n);
        f.vector("ridge_theta", theta, z.n);
    }
};
}  // namespace dpb::DPB_ARCH
