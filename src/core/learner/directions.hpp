// What noisy Gram matrices of directions say about Γ = E[uuᵀ]: a scalar Kalman filter, and how its
// estimate is cleared of noise. All of it is public. See learners/pair.py, which says the same.
#pragma once
#include "../eigen.hpp"
#include "../fields.hpp"

namespace dpb {
namespace DPB_ARCH {
DPB_INLINE double square_of(Size z, const double* m) {
    double sum = 0;
    for (int i = 0; i < z.n; i++) sum += dot(z, m + (i64)i * z.s, m + (i64)i * z.s);
    return sum;
}
DPB_INLINE void scale_by(Size z, double factor, double* m) {
    for (i64 i = 0; i < z.square(); i++) m[i] *= factor;
}
// out = (a − b) less its mean eigenvalue.
DPB_INLINE void difference(Size z, const double* a, const double* b, double* out) {
    for (i64 i = 0; i < z.square(); i++) out[i] = a[i] - b[i];
    double mean = trace_of(z, out) / z.n;
    for (int i = 0; i < z.n; i++) out[(i64)i * z.s + i] -= mean;
}
// out = p·m·pᵀ, for a symmetric m.
DPB_CALL inline void around(Size z, const double* p, const double* m, double* one, double* two, double* out) {
    clear(one, z.square());
    add_product(z, 1, p, m, one);
    turn(z, p, two);
    clear(out, z.square());
    add_product(z, 1, one, two, out);
}

struct Directions {
    static constexpr double NOTHING_KNOWN = 1e-200;  // while nobody new has come: so little that Γ stays as expected
    struct Numbers {
        double seen, slope, variance, information;
    };
    Size z;
    double *mean, *target;
    Numbers* now;
    Directions(Block& b, i64 n) : z(n) {
        mean = b.matrix(z);
        target = b.matrix(z);
        now = b.take<Numbers>(1);
    }
    // What this release says is added to `own` too.
    void learn(const double* noisy, double rounds, double eta, double q, double rho, double scale, double* own,
               double* own_information) {
        now->seen += rounds;
        now->variance += rounds * eta * eta / (z.n * (z.n + 1) / 2.0);
        double of_noise = q * q * now->variance + scale * scale;
        double gain = q * now->variance / of_noise, factor = q * (now->seen - now->slope);
        for (i64 i = 0; i < z.square(); i++) {
            double surprise = noisy[i] - q * mean[i], more = factor * surprise / of_noise;
            target[i] += more;
            own[i] += more;
            mean[i] = (mean[i] + gain * surprise) * rho;
        }
        now->information = larger(now->information + factor * factor / of_noise, NOTHING_KNOWN);
        *own_information += factor * factor / of_noise;
        now->slope = (now->slope + gain * factor) * rho;
        now->variance *= (1 - q * gain) * rho * rho;
        now->seen *= rho;
    }
    void fields(Fields& f) {
        f.matrix("directions_mean", mean, z);
        f.matrix("directions_target", target, z);
        f.real("directions_seen", &now->seen);
        f.real("directions_slope", &now->slope);
        f.real("directions_variance", &now->variance);
        f.real("directions_information", &now->information);
    }
};

struct Cleaner {  // scratch, and what it is for
    static constexpr double CAUTION = 1.5, SURELY = 1;
    Size z;
    double *moved, *vectors, *scaled, *values, *work;
    Cleaner(Block& b, i64 n) : z(n) {
        moved = b.matrix(z);
        vectors = b.matrix(z);
        scaled = b.matrix(z);
        values = b.vector(z);
        work = b.take<double>(3 * z.s);
    }
    // out = the matrix in `moved` with no eigenvalue below `least(eigenvalues)`, at trace 1.
    template <class Least> void raise(Least least, double* out) {
        copy(moved, out, z.square());
        eigen(z, moved, values, vectors, work);
        double lowest = least(values), total = 0;
        for (int i = 0; i < z.n; i++) total += values[i] = larger(values[i], lowest);
        for (int i = 0; i < z.n; i++) values[i] /= total;
        clear(out, z.square());
        add_eigen(z, values, vectors, scaled, out);
    }
    // What was expected, and of the difference what noise of this size does not explain: eigenvalues
    // that stand out from the noise's edge are kept, less what noise adds to them; the others shrink
    // towards their mean.
    DPB_CALL void clear_of_noise(const double* noisy, const double* expected, double sd, double* out) {
        const int n = z.n;
        difference(z, noisy, expected, moved);
        eigen(z, moved, values, vectors, work);
        double edge = 2 * sd * root((double)n), total = 0;
        for (int i = 0; i < n; i++) total += values[i];
        int rest = n;
        while (n - rest < n - 2) {
            double top = values[rest - 1];
            if (top - total / rest <= larger(1.05 * edge, 0.3 / n)) break;
            total -= top;
            rest--;
        }
        double middle = total / rest, large = 0, spread = 0;
        for (int i = rest; i < n; i++) {
            values[i] -= sd * sd * n / larger(values[i] - middle, edge);
            large += values[i];
        }
        for (int i = 0; i < rest; i++) spread += (values[i] - middle) * (values[i] - middle);
        double share = larger(0, 1 - CAUTION * rest * sd * sd / larger(spread / rest, 1e-300));
        for (int i = 0; i < rest; i++) values[i] = -large / rest + share * (values[i] - middle);
        copy(expected, moved, z.square());
        add_eigen(z, values, vectors, scaled, moved);
        raise(
            [=](const double* found) {
                double sum = 0;
                for (int i = 0; i < rest; i++) sum += larger(found[i], 0);
                return larger(smaller(0.5 * sum / rest, SURELY * edge), smaller(0.01 / n, edge));
            },
            out);
    }
    // The pooled design, moved towards a version's own as far as they differ beyond noise.
    DPB_CALL void own_design(const double* noisy, const double* pooled, double sd, double* out) {
        const int n = z.n;
        difference(z, noisy, pooled, moved);
        double share = larger(0, 1 - sd * sd * ((double)n * (n + 1) - 2) / larger(square_of(z, moved), 1e-300));
        for (i64 i = 0; i < z.square(); i++) moved[i] = pooled[i] + share * moved[i];
        double least = larger(0.5 * sd, 0.002 / n);
        // Mostly nothing is below that, and then there is nothing to raise.
        if (has_factor(z, moved, 1, -least, scaled)) {
            double unit = 1 / trace_of(z, moved);
            for (i64 i = 0; i < z.square(); i++) out[i] = moved[i] * unit;
            return;
        }
        raise([=](const double*) { return least; }, out);
    }
};
}  // namespace DPB_ARCH
}  // namespace dpb
