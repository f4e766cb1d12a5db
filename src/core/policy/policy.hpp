// What is played, given what was released: one place for every rule, and no rule by default.
#pragma once
#include "../interface.hpp"
#include "scores.hpp"

namespace dpb::DPB_ARCH {
struct View {  // what a learner shows of itself: released or public numbers only
    const double *theta, *matrix;
    const double* factor = nullptr;  // the matrix's upper factor, where it is kept
};
// Scratch of the rules.
struct Desk {
    double *work, *mean, *draw, *root_of_matrix;
    DPB_INLINE Desk(Block& b, Size z, PolicyKind policy) {
        work = b.take<double>(pack_room(z.n));
        mean = b.vector(z);
        draw = b.take<double>(z.s + 8);
        root_of_matrix = b.take<double>(policy == PolicyKind::thompson ? z.square() : 0);
    }
};
// Lots of one key that must not meet those of ties, which are addressed by the decision alone.
constexpr u64 OWN_LOTS = 1ull << 61, HOLDOUT = 1ull << 60;
// θ + α·L·z with L·Lᵀ the matrix: one draw for all arms, so that an arm is played with the
// probability that it is best.
DPB_CALL inline void draw_theta(Size z, const View& view, double alpha, u64 key, u64 decision, Desk& desk) {
    double* normals = desk.work;  // free until arms are packed
    add_normals(key, decision | OWN_LOTS, z.n, alpha, nullptr, normals);
    const double* upper = view.factor;
    if (!upper) {
        factor(z, view.matrix, nullptr, desk.root_of_matrix);
        upper = desk.root_of_matrix;
    }
    for (int i = 0; i < z.n; i++) {
        double sum = view.theta[i];
        for (int k = 0; k <= i; k++) sum += upper[(i64)k * z.s + i] * normals[k];
        desk.draw[i] = sum;
    }
    for (int i = z.n; i < z.s; i++) desk.draw[i] = 0;
}
// Lots with known probabilities: policies/sampled.py has the formula. A Gumbel number is added to the
// logarithm of each arm's weight, and the highest sum is then drawn with that weight's share.
DPB_CALL inline void draw_arm(Size z, const View& view, const Slate& slate, double alpha, u64 key,
                              u64 decision, Desk& desk, double* scores) {
    double *widths = scores + room_for(slate.arms), *lots = widths + room_for(slate.arms);
    score(z, view.matrix, view.theta, slate, 0, nullptr, desk.work, scores);
    const double best = largest_of(scores, slate.arms), tie = tie_at(best);
    i64 leader = 0;
    while (leader + 1 < slate.arms && scores[leader] < best - tie) leader++;
    for (int i = 0; i < z.n; i++) desk.mean[i] = slate.row(leader)[i];
    clear(desk.draw, z.s);  // θ of zeros: what is left are widths of differences
    score(z, view.matrix, desk.draw, slate, alpha, desk.mean, desk.work, widths);
    uniforms(key, decision | OWN_LOTS, slate.arms, lots);
    for (i64 j = 0; j < slate.arms; j++) {
        const double behind = best - scores[j], g = behind > tie ? behind / widths[j] : 0;
        scores[j] = -g * (1.5976 + 0.07056 * g * g) - log1(-log1(lots[j]));
    }
}
// Whether this decision is one of those that the lot makes alone, whatever was learned.
DPB_INLINE bool is_held_out(double holdout, u64 key, u64 decision) {
    return holdout > 0 && one_uniform(key, decision | HOLDOUT) < holdout;
}
DPB_INLINE void score_by(PolicyKind policy, Size z, const View& view, const Slate& slate, double alpha,
                         u64 key, u64 decision, Desk& desk, double* scores) {
    switch (policy) {
        case PolicyKind::ucb:
            return score(z, view.matrix, view.theta, slate, alpha, nullptr, desk.work, scores);
        case PolicyKind::centred_ucb:
            // What all arms share cannot tell them apart: its uncertainty is no reason to explore.
            mean_of(z, slate, desk.mean);
            return score(z, view.matrix, view.theta, slate, alpha, desk.mean, desk.work, scores);
        case PolicyKind::thompson:
            draw_theta(z, view, alpha, key, decision, desk);
            return score(z, view.matrix, desk.draw, slate, 0, nullptr, desk.work, scores);
        case PolicyKind::sampled:
            return draw_arm(z, view, slate, alpha, key, decision, desk, scores);
        case PolicyKind::uniform:
            return clear(scores, slate.arms);
        case PolicyKind::index: break;  // the arms' own rule: see bandit/arms.hpp
    }
    __builtin_trap();
}
}  // namespace dpb::DPB_ARCH
