// Arms without features, one binary tree each (Mishra & Thakurta 2015, private UCB). A context is a
// one-hot row that names its arm. An arm's tree counts that arm's own pulls, so a reward enters one
// tree only; which arm was pulled, and when, is public.
#pragma once
#include "../release/tree.hpp"
#include "common.hpp"

namespace dpb::DPB_ARCH {
// The index of an arm that was never pulled: above every other, and its square is still a float.
constexpr double UNTRIED = 1e140;

// The arm that a one-hot row names.
DPB_INLINE i64 named_arm(const double* x, int arms) {
    i64 arm = 0;
    for (int i = 0; i < arms; i++)
        if (x[i] > 0.5) arm = i;
    return arm;
}

struct Arms : Common {
    static constexpr bool is_whole = true;
    i64 rows;
    whole* sums;  // arms × levels
    double *published, *carry, *spread, *bonuses;
    i64 *pulls, *last;
    Arms(Block& b, const Spec& spec) : Common(b, spec, 1), rows(rows_for(spec)) {
        sums = b.take<whole>(o.dim * rows);
        published = b.take<double>(o.dim * rows);
        carry = b.take<double>(o.dim);
        spread = b.take<double>(o.dim);
        bonuses = b.take<double>(o.dim);
        pulls = b.take<i64>(o.dim);
        last = b.take<i64>(1);
    }
    i64 numbers() const { return 1; }
    const double* matrix() const { return nullptr; }
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
    // What an arm's index has on top of its released mean in the coming round.
    DPB_CALL void index_arms(double alpha) {
        i64 t = clock->rounds + 1;
        double explore = alpha * width() * root(2 * log1((double)t)), noise = privacy_weight(t);
        for (i64 arm = 0; arm < o.dim; arm++) {
            double n = (double)pulls[arm];
            bonuses[arm] = pulls[arm] ? explore * root(1 / n) + noise * spread[arm] / n : UNTRIED;
        }
    }
    const double* bonuses_of(double alpha) {
        index_arms(alpha);
        return bonuses;
    }
    DPB_CALL double prepare(const double* x, double reward, bool) {
        clock->rounds++;
        i64 arm = *last = named_arm(x, z.n), pull = ++pulls[arm];
        Place at(pull, o.unknown_horizon, o.levels);
        whole *own = sums + arm * rows, sum = to_grid((reward - centre()) / width());
        if (o.unknown_horizon && at.index == 1 && pull > 1) close_block(arm, pull - 1);
        for (int below = 0; below < at.level; below++) {
            sum += own[below];
            own[below] = 0;
        }
        own[at.level] = sum;
        node.wide = true;
        node.wides[0] = sum;
        show_pending(1);
        return o.multipliers[at.levels] * o.sensitivity;
    }
    void close_block(i64 arm, i64 ended) {
        double* noisy_sums = published + arm * rows;
        carry[arm] += noisy_sums[bit_length((u64)ended) - 1];
        for (i64 level = 0; level < rows; level++) {
            noisy_sums[level] = 0;
            sums[arm * rows + level] = 0;
        }
    }
    DPB_CALL void commit(const double* value) {
        i64 arm = *last, pull = pulls[arm];
        Place at(pull, o.unknown_horizon, o.levels);
        double* own = published + arm * rows;
        int above = at.above();
        own[at.level] = value[0] + (above >= 0 ? own[above] : 0);
        double total = carry[arm] + own[at.level];
        released[arm] = centre() + width() * total / (double)pull;
        spread[arm] = width() * spread_of(at);
    }
    // How far the noise in an arm's sum reaches: the root of the squared scales of the nodes in use.
    // For the paper's Γ it covers as many nodes as can be in use at once, and the scales of Laplace
    // nodes are added up as they are.
    double spread_of(const Place& at) const {
        double scale = o.multipliers[at.levels] * o.sensitivity;
        double nodes = o.published_term ? at.levels : __builtin_popcountll((u64)at.index);
        double total = nodes * scale, square = nodes * scale * scale;
        for (int block = 1; o.unknown_horizon && block < at.levels; block++) {
            scale = o.multipliers[block] * o.sensitivity;
            total += scale;
            square += scale * scale;
        }
        bool added = o.published_term && o.noise != NoiseKind::gaussian;
        return added ? total : root(square);
    }
    // What the spread is multiplied by in round t: the noise's tail at probability 1/t, or the paper's,
    // that all nodes of T rounds keep to. It grows, or an arm unlucky early on is never pulled again.
    double privacy_weight(i64 t) const {
        bool gaussian = o.noise == NoiseKind::gaussian;
        double log_of = log1((double)t);
        if (!o.published_term) return o.privacy_bonus * (gaussian ? root(2 * log_of) : log_of);
        double rounds = o.unknown_horizon ? (double)t : (double)o.horizon;
        double levels = o.unknown_horizon ? bit_length((u64)t) : (double)o.levels;
        double arms = (double)o.dim;
        if (gaussian) return root(2 * log1(2 * arms * rounds / o.failure));
        return log1(arms * rounds * levels / o.failure);
    }
    void fields(Fields& f) {
        common_fields(f);
        f.wholes("sums_low", "sums_high", sums, o.dim, rows);
        f.put("noisy", published, false, o.dim, rows, rows);
        f.vector("carry", carry, o.dim);
        f.vector("spread", spread, o.dim);
        f.put("pulls", pulls, true, 0, o.dim, 1);
        f.number("arm", last);
    }
};
}  // namespace dpb::DPB_ARCH
