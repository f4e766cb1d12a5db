// The square-root Toeplitz factorisation of prefix sums, streamed in constant memory (Dvijotham et
// al. 2024): round t shows the encoded value (Cg)_t, c_k = Σ_i ω_i·θ_i^{k−1}. Not a sum of whole
// numbers: items are, and what rounding does to the buffers is charged (release/toeplitz.py).
#pragma once
#include "../fields.hpp"
#include "../fixed.hpp"

namespace dpb::DPB_ARCH {
struct ToeplitzRelease : OneByOne {
    static constexpr bool is_whole = false;
    Size z;
    int decays;
    double *rates, *weights;  // 1 − θ says more digits about a slow decay
    double *clean, *clean_low, *noisy, *noisy_low, *total, *total_low, *item;
    i64* steps;
    ToeplitzRelease(Block& b, const Spec& spec)
        : OneByOne{spec}, z(spec.dim), decays((int)(spec.rates.rows * spec.rates.columns)) {
        rates = b.take<double>(decays);
        weights = b.take<double>(decays);
        clean = b.take<double>(decays * z.s);
        clean_low = b.take<double>(decays * z.s);
        noisy = b.take<double>(decays * z.s);
        noisy_low = b.take<double>(decays * z.s);
        total = b.vector(z);
        total_low = b.vector(z);
        item = b.vector(z);
        steps = b.take<i64>(z.s);
        if (!b.at) return;
        copy(spec.rates.at, rates, decays);
        copy(spec.weights.at, weights, decays);
    }

    // s ← θs + ωg as s + (ωg − (1 − θ)s), with the rounding of the addition kept: a slow buffer
    // would add up a million roundings of its own size before it forgets the first.
    DPB_INLINE static void advance(double* sum, double* low, four g, double rate, double weight) {
        four old = load(sum);
        four change = (splat(weight) * g - splat(rate) * old) + load(low);
        four fresh = old + change, back = fresh - old;
        store(sum, fresh);
        store(low, (old - (fresh - back)) + (change - back));
    }
    DPB_INLINE double add(i64, double factor, const double* u, double, Node&, double* pending) {
        to_grid(z, factor, u, steps);
        for (int i = 0; i < z.s; i++) item[i] = (double)steps[i] * STEP;
        for (int k = 0; k < z.s; k += 4) {
            four g = load(item + k), sum = g;
            for (int i = 0; i < decays; i++) {
                i64 at = (i64)i * z.s + k;
                sum += load(clean + at);
                advance(clean + at, clean_low + at, g, rates[i], weights[i]);
            }
            store(pending + k, sum);
        }
        for (int i = 0; i < z.s; i++) steps[i] = 0, item[i] = 0;
        return o.multipliers[1] * o.sensitivity;
    }
    DPB_INLINE void publish(i64, const double* value, double* prefix) {
        for (int k = 0; k < z.s; k += 4) {
            four g = load(value + k);
            for (int i = 0; i < decays; i++) g -= load(noisy + (i64)i * z.s + k);
            for (int i = 0; i < decays; i++) {
                i64 at = (i64)i * z.s + k;
                advance(noisy + at, noisy_low + at, g, rates[i], weights[i]);
            }
            four old = load(total + k), change = g + load(total_low + k);
            four fresh = old + change, back = fresh - old;
            store(total + k, fresh);
            store(total_low + k, (old - (fresh - back)) + (change - back));
            store(prefix + k, fresh);
        }
    }
    void base(double* prefix) const { copy(total, prefix, z.s); }
    void fields(Fields& f) {
        f.table("clean", clean, decays, z);
        f.table("clean_low", clean_low, decays, z);
        f.table("noisy_buffers", noisy, decays, z);
        f.table("noisy_low", noisy_low, decays, z);
        f.vector("total", total, z.n);
        f.vector("total_low", total_low, z.n);
    }
};
}  // namespace dpb::DPB_ARCH
