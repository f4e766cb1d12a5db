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
// θ + α·L·z with L·Lᵀ the matrix: one draw for all arms, so that an arm is played with the
// probability that it is best.
DPB_CALL inline void draw_theta(Size z, const View& view, double alpha, u64 key, u64 decision, Desk& desk) {
    double* normals = desk.work;  // free until arms are packed
    add_normals(key, decision | 1ull << 61, z.n, alpha, nullptr, normals);
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
        case PolicyKind::uniform:
            return clear(scores, slate.arms);
        case PolicyKind::index: break;  // the arms' own rule: see bandit/arms.hpp
    }
    __builtin_trap();
}
}  // namespace dpb::DPB_ARCH
