// What noisy releases of an instrument sum say about (θ, intercept): an exact Kalman filter, in
// constant memory. A release is y = q·S + z, where S = Σ ω·u·e sums residuals e = r − p. With the
// public offset O = Σ ω·u·p it is the sum of u·r, and Σ ω·u·r = N·θ⁺ + E: N = Σ ω·u·x⁺ᵀ is public, E
// sums reward noises. E goes from release to release, so it is part of the state: given θ⁺ and the
// releases it is Gaussian with mean ξ + Ξθ⁺ and covariance Π. What a release says about θ⁺ alone comes out
// as equations, for the bank to keep.
#pragma once
#include "../fields.hpp"
#include "../linalg.hpp"
#include "../random.hpp"

namespace dpb::DPB_ARCH {
constexpr int SEEN_TOGETHER = 16;  // rounds that join N and the spread at a time

struct Filter {
    Size z;  // d + 1
    double *design, *offset, *spread;                // N, O, Σ ω²·u·uᵀ since the last release
    double *mean, *slope, *covariance;               // ξ, Ξ, Π
    double* played;                                  // Σ x⁺x⁺ᵀ of what was played of late
    double *rows_u, *rows_x;                         // rounds that wait, weighted
    i64* waiting;
    double *square, *gain, *seen, *half, *turned, *surprise;  // scratch

    Filter(Block& b, i64 size) : z(size) {
        design = b.matrix(z);
        spread = b.matrix(z);
        rows_u = b.take<double>(SEEN_TOGETHER * z.s);
        rows_x = b.take<double>(SEEN_TOGETHER * z.s);
        offset = b.vector(z);
        waiting = b.take<i64>(1);
        mean = b.vector(z);
        slope = b.matrix(z);
        covariance = b.matrix(z);
        played = b.matrix(z);
        square = b.matrix(z);
        gain = b.matrix(z);
        seen = b.matrix(z);
        half = b.matrix(z);
        turned = b.matrix(z);
        surprise = b.vector(z);
    }
    // A round whose item is weight·u·(r − prediction); `longer` is (x, 1).
    DPB_INLINE void see(const double* longer, const double* u, double weight, double prediction) {
        double *own_u = rows_u + *waiting * z.s, *own_x = rows_x + *waiting * z.s;
        for (int i = 0; i < z.s; i += 4) {
            four weighted = splat(weight) * load(u + i);
            store(own_u + i, weighted);
            store(own_x + i, load(longer + i));
            store(offset + i, load(offset + i) + splat(prediction) * weighted);
        }
        if (++*waiting == SEEN_TOGETHER) settle();
    }
    DPB_CALL void settle() {
        if (!*waiting) return;
        add_rows(z, design, rows_u, rows_x, (int)*waiting);
        add_rows(z, spread, rows_u, rows_u, (int)*waiting);
        add_rows(z, played, rows_x, rows_x, (int)*waiting);
        *waiting = 0;
    }
    // What the sum holds may be off by this, in every direction.
    void doubt(double by) {
        for (int i = 0; i < z.n; i++) covariance[(i64)i * z.s + i] += by * by;
    }
    // A release y = q·S + noise of this scale, made before all sums shrink by ρ. Leaves what it says, as
    // equations seen·θ⁺ = surprise, each of variance 1.
    DPB_CALL void learn(const double* noisy, double q, double rho, double scale, double reward_variance) {
        settle();
        const int n = z.n, s = z.s;
        for (int i = 0; i < n; i++)
            for (int k = 0; k <= i; k++) {
                double entry = covariance[(i64)i * s + k] + reward_variance * spread[(i64)i * s + k];
                covariance[(i64)i * s + k] = covariance[(i64)k * s + i] = entry;
            }
        // F = q²Π + scale²: its factor is `half`, its inverse `square`, the gain K = qΠF⁻¹.
        for (i64 i = 0; i < z.square(); i++) square[i] = q * q * covariance[i];
        for (int i = 0; i < n; i++) square[(i64)i * s + i] += scale * scale;
        factor(z, square, nullptr, half);
        copy(half, seen, z.square());
        invert_factor(z, seen, square);
        clear(gain, z.square());
        add_product(z, q, covariance, square, gain);
        // What is seen is `seen`·θ⁺ + noise of covariance F, once what was expected is taken off.
        for (i64 i = 0; i < z.square(); i++) seen[i] = q * (design[i] + slope[i]);
        for (int i = 0; i < n; i++) surprise[i] = noisy[i] + q * (offset[i] - mean[i]);
        for (int i = 0; i < n; i++) mean[i] += dot(z, gain + (i64)i * s, surprise);
        add_product(z, -1, gain, seen, slope);
        shrink_covariance(q, scale);
        whiten_seen();
        for (int i = 0; i < s; i++) {
            offset[i] *= rho;
            mean[i] *= rho;
        }
        for (i64 i = 0; i < z.square(); i++) {
            design[i] *= rho;
            slope[i] *= rho;
            covariance[i] *= rho * rho;
        }
    }
    // Π ← (1 − qK)Π(1 − qK)ᵀ + scale²KKᵀ: Joseph's form, which rounding cannot make negative.
    DPB_CALL void shrink_covariance(double q, double scale) {
        const int n = z.n, s = z.s;
        for (i64 i = 0; i < z.square(); i++) square[i] = -q * gain[i];
        for (int i = 0; i < n; i++) square[(i64)i * s + i] += 1;
        clear(spread, z.square());
        add_product(z, 1, square, covariance, spread);
        clear(covariance, z.square());
        turn(z, square, turned);
        add_product(z, 1, spread, turned, covariance);
        turn(z, gain, turned);
        add_product(z, scale * scale, gain, turned, covariance);
        for (int i = 0; i < n; i++)
            for (int k = 0; k < i; k++) covariance[(i64)k * s + i] = covariance[(i64)i * s + k];
        clear(spread, z.square());
    }
    // Rows of F^{−1/2}·seen; `half` holds F's factor.
    DPB_CALL void whiten_seen() {
        const int n = z.n, s = z.s;
        for (int i = 0; i < n; i++) {
            double unit = 1 / half[(i64)i * s + i];
            for (int j = 0; j < i; j++) surprise[i] -= half[(i64)j * s + i] * surprise[j];
            surprise[i] *= unit;
            double *own = seen + (i64)i * s, *rows = seen, *entries = half;
            in_strips(0, s, [=](auto width, int k) __attribute__((always_inline)) {
                constexpr int N = decltype(width)::count;
                four sum[N];
                DPB_UNROLL for (int v = 0; v < N; v++) sum[v] = load(own + k + 4 * v);
                for (int j = 0; j < i; j++) {
                    four entry = splat(entries[(i64)j * s + i]);
                    DPB_UNROLL for (int v = 0; v < N; v++)
                        sum[v] -= entry * load(rows + (i64)j * s + k + 4 * v);
                }
                DPB_UNROLL for (int v = 0; v < N; v++) store(own + k + 4 * v, sum[v] * splat(unit));
            });
        }
    }
    void fields(Fields& f) {
        f.matrix("design", design, z);
        f.vector("offset", offset, z.n);
        f.matrix("spread", spread, z);
        f.vector("mean", mean, z.n);
        f.matrix("slope", slope, z);
        f.matrix("covariance", covariance, z);
        f.matrix("played", played, z);
        f.table("rows_u", rows_u, SEEN_TOGETHER, z);
        f.table("rows_x", rows_x, SEEN_TOGETHER, z);
        f.number("seen_waiting", waiting);
    }
};
}  // namespace dpb::DPB_ARCH
