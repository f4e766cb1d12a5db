// Arms without features, the sum of each batch of an arm's pulls shown once (DP-KL-UCB, Azize et al.
// 2025). When a batch ends is a matter of its arm's pulls alone, which are public. An arm's index is
// the largest mean under which its noisy sum is not too unlikely, by Chernoff's bound.
#pragma once
#include "arms.hpp"

namespace dpb::DPB_ARCH {
// 1 − e^−x for x ≥ 0, to the last digits also where x is small.
DPB_CALL inline double fall(double x) {
    if (x > 0.25) return 1 - exp1(-x);
    double sum = 0, term = 1;
    for (int k = 1; k < 15; k++) sum -= term *= -x / k;
    return sum;
}
struct Batches : Common {
    static constexpr bool is_whole = true;
    // Those of learners/batches.py.
    static constexpr double MOST_RATE = 64, BELOW_POLE = 1 - 1e-12, DECADES = 30, GOLDEN = 0.6180339887498949;
    static constexpr int SECTIONS = 48;
    struct Times {
        double alpha;  // with which, and with how many bits of the rounds, bonuses were computed
        i64 bits, arm;
    };
    whole* sums;  // of the batches that are not over
    i64 *pulls, *shown, *releases, *known;
    double *carry, *bonuses;
    Times* last;
    Batches(Block& b, const Spec& spec) : Common(b, spec, 1) {
        sums = b.take<whole>(o.dim);
        pulls = b.take<i64>(o.dim);
        shown = b.take<i64>(o.dim);     // pulls in batches that are over
        releases = b.take<i64>(o.dim);  // how many of them are
        known = b.take<i64>(o.dim);     // whether the bonus is that of the last release
        carry = b.take<double>(o.dim);
        bonuses = b.take<double>(o.dim);
        last = b.take<Times>(1);
    }
    i64 numbers() const { return 1; }
    const double* matrix() const { return nullptr; }
    void loaded() {
        for (i64 arm = 0; arm < o.dim; arm++) known[arm] = 0;
    }
    DPB_CALL int choose_by(const View&, const Slate& slate, double alpha, double* scores) {
        u64 decision = (u64)clock->decisions++;
        index_arms(alpha);
        for (i64 j = 0; j < slate.arms; j++) {
            i64 arm = named_arm(slate.row(j), z.n);
            scores[j] = released[arm] + bonuses[arm];
        }
        if (is_held_out(o.holdout, o.ties_key, decision)) clear(scores, slate.arms);
        return pick(scores, slate.arms, o.ties_key, decision);
    }
    const double* bonuses_of(double alpha) {
        index_arms(alpha);
        return bonuses;
    }
    DPB_INLINE bool ends(i64 arm) const {
        double grown = smaller((double)shown[arm] * o.ratio, 0x1p62);
        i64 end = (i64)grown + ((double)(i64)grown < grown);
        return pulls[arm] + 1 >= (end > shown[arm] + o.first ? end : shown[arm] + o.first);
    }
    bool quiet(const double* x) const { return !ends(named_arm(x, z.n)); }
    DPB_CALL double prepare(const double* x, double reward, bool) {
        clock->rounds++;
        i64 arm = last->arm = named_arm(x, z.n);
        bool over = ends(arm);
        pulls[arm]++;
        sums[arm] += to_grid((reward - centre()) / width());
        if (!over) return NO_RELEASE;
        node.wide = true;
        node.wides[0] = sums[arm];
        sums[arm] = 0;
        show_pending(1);
        return o.scale;
    }
    DPB_CALL void commit(const double* value) {
        i64 arm = last->arm;
        shown[arm] = pulls[arm];
        releases[arm]++;
        carry[arm] += value[0];
        released[arm] = o.low + width() * within(mean(arm));
        known[arm] = 0;
    }
    static double within(double mean) { return smaller(larger(mean, 0), 1); }
    double mean(i64 arm) const { return 0.5 + carry[arm] / (double)shown[arm]; }
    // What an arm's index has on top of its mean: computed anew after its release, and when an
    // unknown horizon doubles.
    DPB_CALL void index_arms(double alpha) {
        i64 bits = o.horizon ? 0 : bit_length((u64)clock->rounds);
        if (alpha != last->alpha || bits != last->bits) loaded();
        last->alpha = alpha;
        last->bits = bits;
        double rounds = o.horizon ? (double)o.horizon / (double)o.dim : (double)((u64)1 << bits);
        for (i64 arm = 0; arm < o.dim; arm++) {
            if (known[arm]) continue;
            known[arm] = 1;
            bonuses[arm] = UNTRIED;
            if (!shown[arm]) continue;
            double log = alpha * log1(larger(rounds / (double)shown[arm], 1));
            bonuses[arm] = width() * (upper(arm, log) - within(mean(arm)));
        }
    }
    // Chernoff's bound on the mean at one rate; `upper` in learners/batches.py says why it is one.
    DPB_CALL double bound_at(double rate, i64 arm, double log) const {
        double n = (double)shown[arm], s = rate * o.scale, variance = o.reward_variance / (width() * width());
        double cumulant = o.noise == NoiseKind::gaussian ? 0.5 * s * s : -log1(1 - s * s);
        double spread = log / n + (double)releases[arm] / n * cumulant;
        if (variance > 0) return mean(arm) + (spread + 0.5 * variance * rate * rate) / rate;
        return fall(larger(spread + rate * mean(arm), 0)) / fall(rate);
    }
    DPB_CALL double upper(i64 arm, double log) const {
        double least = within(mean(arm)), most = MOST_RATE;
        if (log <= 0) return least;
        if (o.noise == NoiseKind::laplace && o.scale * MOST_RATE > BELOW_POLE) most = BELOW_POLE / o.scale;
        double low = -DECADES, high = 0, left = high - GOLDEN * (high - low), right = low + GOLDEN * (high - low);
        double at_left = bound_at(most * exp1(left), arm, log), at_right = bound_at(most * exp1(right), arm, log);
        for (int n = 0; n < SECTIONS; n++) {
            if (at_left < at_right) {
                high = right;
                right = left;
                at_right = at_left;
                left = high - GOLDEN * (high - low);
                at_left = bound_at(most * exp1(left), arm, log);
            } else {
                low = left;
                left = right;
                at_left = at_right;
                right = low + GOLDEN * (high - low);
                at_right = bound_at(most * exp1(right), arm, log);
            }
        }
        double found = smaller(smaller(at_left, at_right), bound_at(most, arm, log));
        return larger(smaller(found, 1), least);
    }
    void fields(Fields& f) {
        common_fields(f);
        f.put("sums_low", sums, true, 0, o.dim, 2, 2);
        f.put("sums_high", (i64*)sums + 1, true, 0, o.dim, 2, 2);
        f.put("pulls", pulls, true, 0, o.dim, 1);
        f.put("shown", shown, true, 0, o.dim, 1);
        f.put("releases", releases, true, 0, o.dim, 1);
        f.vector("carry", carry, o.dim);
        f.number("arm", &last->arm);
    }
};
}  // namespace dpb::DPB_ARCH
