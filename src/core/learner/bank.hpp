// What releases say about θ⁺, under hypotheses that compete: how fast the world changes. Each memory M keeps
// a square root of the information on θ⁺, to which equations are added by reflections: a sum of squares would
// drown small directions in rounding. It fades by M/(M + Δ) in Δ rounds; the first never fades. The one that
// foretold the noisy releases best, of late, acts, or the one that is asked for alone. Where contexts share all
// features and one that forgets acts, the others have a say too, by how well they foretold. All of it is made of what was released.
// No prior is in it, so a prior may be chosen, and changed, when the posterior is read.
#pragma once
#include "../fields.hpp"
#include "../linalg.hpp"
#include "../random.hpp"

namespace dpb::DPB_ARCH {
struct Bank {
    // Scores fade by LATELY/(LATELY + Δ); the first memory acts until another is ahead by so many nats.
    static constexpr double LATELY = 5000, AHEAD = 3;
    // Where contexts share all features every play tells of all arms: less is needed to forget. What a memory
    // must weigh, beside the one that acts, to have a say.
    static constexpr double AHEAD_IF_SHARED = 1.5, LEAST_WEIGHT = 1e-2;
    Size z;  // d + 1
    i64 count;
    const Table& memories;  // of all but the first
    bool alone;  // the last acts, whatever was foretold
    double *roots, *targets, *scores;
    i64* acting;
    double* weights;  // of what the memories say; scratch, like what follows
    double *joined, *aim, *rows, *values, *prior, *pulls;  // scratch

    Bank(Block& b, i64 size, const Table& given, bool alone)
        : z(size), count(given.rows + 1), memories(given), alone(alone) {
        roots = b.take<double>(count * z.square());
        targets = b.take<double>(count * z.s);
        scores = b.take<double>(count);
        acting = b.take<i64>(1);
        weights = b.take<double>(count);
        joined = b.matrix(z);
        aim = b.vector(z);
        rows = b.matrix(z);
        values = b.vector(z);
        prior = b.matrix(z);
        pulls = b.vector(z);
    }
    double* root_of(i64 k) const { return roots + k * z.square(); }
    // Equations seen·θ⁺ = surprise, so many rounds after the last ones, under the prior of the last reading.
    // `shared`: contexts share all features.
    DPB_CALL void learn(const double* seen, const double* surprise, double elapsed, const double* precision,
                        const double* pull, bool first, bool shared) {
        const int n = z.n, s = z.s;
        const double faded = LATELY / (LATELY + elapsed);
        const double ahead = shared ? AHEAD_IF_SHARED : AHEAD;
        const bool compete = !first && count > 1;
        if (compete) write_prior(precision, pull);
        i64 best = 0;
        for (i64 k = 0; k < count; k++) {
            double *own = root_of(k), *target = targets + k * s;
            if (k) {
                const double left = root(memories.at[k - 1] / (memories.at[k - 1] + elapsed));
                for (i64 i = 0; i < z.square(); i++) own[i] *= left;
                for (int i = 0; i < s; i++) target[i] *= left;
            }
            if (compete) {
                add_prior(k);
                double likely = 0;
                for (int i = 0; i < n; i++) likely += log1(joined[(i64)i * s + i]);
                copy(seen, rows, z.square());
                copy(surprise, values, s);
                add_equations(z, joined, aim, rows, values, false);
                for (int i = 0; i < n; i++)
                    likely -= 0.5 * values[i] * values[i] + log1(joined[(i64)i * s + i]);
                scores[k] = faded * scores[k] + likely;
            }
            copy(seen, rows, z.square());
            copy(surprise, values, s);
            add_equations(z, own, target, rows, values, false);
            if (k && (alone || scores[k] > scores[best] + (best ? 0 : ahead))) best = k;
        }
        *acting = best;
        weigh(shared && best && !alone, ahead);
    }
    // The one that acts, or all, by what they foretold.
    void weigh(bool all, double ahead) {
        const double most = scores[*acting] + (*acting ? 0 : ahead);
        double total = 0;
        for (i64 k = 0; k < count; k++) {
            weights[k] = k == *acting ? 1 : all ? exp1(scores[k] + (k ? 0 : ahead) - most) : 0;
            if (weights[k] < LEAST_WEIGHT) weights[k] = 0;
            total += weights[k];
        }
        for (i64 k = 0; k < count; k++) weights[k] /= total;
    }
    bool has_one_say() const { return weights[*acting] == 1; }
    // Windows were narrower than is right now: memories that fade keep this share of their roots.
    void doubt(double known) {
        for (i64 k = 1; k < count; k++) {
            for (i64 i = 0; i < z.square(); i++) root_of(k)[i] *= known;
            for (int i = 0; i < z.s; i++) targets[k * z.s + i] *= known;
        }
    }
    // A prior of this precision and pull = precision·mean, and what memory k holds, as one system: joined·θ⁺ =
    // aim. Returns the log of the marginal likelihood, up to a constant that no prior changes.
    DPB_CALL double join(i64 k, const double* precision, const double* pull) {
        const int n = z.n, s = z.s;
        write_prior(precision, pull);
        add_prior(k);
        double likely = 0;
        for (int i = 0; i < n; i++) likely += log1(prior[(i64)i * s + i]);
        for (int i = 0; i < n; i++) likely -= 0.5 * values[i] * values[i] + log1(joined[(i64)i * s + i]);
        return likely;
    }
    // A prior as equations: U·θ⁺ = U⁻ᵀ·pull.
    void write_prior(const double* precision, const double* pull) {
        factor(z, precision, nullptr, prior);
        solve_lower(z, prior, pull, pulls);
    }
    void add_prior(i64 k) {
        copy(root_of(k), joined, z.square());
        copy(targets + k * z.s, aim, z.s);
        copy(prior, rows, z.square());
        copy(pulls, values, z.s);
        add_equations(z, joined, aim, rows, values, true);
    }
    // The posterior's mean and covariance, right after `join`.
    DPB_CALL void read(double* mean, double* covariance) {
        copy(aim, mean, z.s);
        solve_upper(z, joined, mean);
        invert_factor(z, joined, covariance);
    }
    // How much is known about the first d numbers of θ⁺: the trace of the information.
    DPB_CALL double known() const {
        const double* own = root_of(*acting);
        double sum = 0;
        for (int i = 0; i < z.n - 1; i++)
            for (int k = i; k < z.n - 1; k++) sum += own[(i64)i * z.s + k] * own[(i64)i * z.s + k];
        return sum;
    }
    void fields(Fields& f) {
        f.put("information_root", roots, false, count * z.n, z.n, z.s);
        f.table("target", targets, count, z);
        f.vector("scores", scores, count);
        f.number("acting", acting);
    }
};
}  // namespace dpb::DPB_ARCH
