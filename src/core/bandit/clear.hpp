// Bandits whose learner sees each reward as it is released: not at all (random play), in the clear
// (LinUCB), or with noise of its own (local).
#pragma once
#include "../learner/ridge.hpp"
#include "common.hpp"

namespace dpb::DPB_ARCH {
struct RandomPlay : Common {
    RandomPlay(Block& b, const Spec& spec) : Common(b, spec, 0) {}
    i64 numbers() const { return 0; }
    bool quiet(const double*) const { return true; }
    const double* matrix() const { return nullptr; }
    DPB_INLINE double prepare(const double*, double, bool) {
        clock->rounds++;
        return NO_RELEASE;
    }
    void fields(Fields& f) { common_fields(f); }
};

// What has a regression of its own. `learn` tells it a reward as it was released.
struct Regression : Common {
    Ridge ridge;
    Regression(Block& b, const Spec& spec, i64 numbers)
        : Common(b, spec, numbers), ridge(b, spec.dim, spec.ridge) {}
    const double* matrix() const { return ridge.inverse; }
    DPB_INLINE void learn(const double* x, double reward) {
        double quadratic = ridge.add_context(x);
        ridge.add_reward(x, reward, quadratic);
        if (ridge.due(quadratic)) ridge.refresh();
    }
    void fields(Fields& f) {
        common_fields(f);
        ridge.fields(f);
    }
};

struct InTheClear : Regression {
    InTheClear(Block& b, const Spec& spec) : Regression(b, spec, 0) { released = ridge.theta; }
    i64 numbers() const { return 0; }
    bool quiet(const double*) const { return true; }
    DPB_CALL double prepare(const double* x, double reward, bool) {
        clock->rounds++;
        if (o.forget < 1) ridge.fade(o.forget);
        learn(x, reward);
        // λ comes back in all directions at once: that is no update of A⁻¹ along x.
        if (o.forget < 1) ridge.refresh();
        return NO_RELEASE;
    }
    bool conclude_again() {
        ridge.refresh();
        return true;
    }
};

struct Local : Regression {
    static constexpr bool is_whole = true;
    double* context;
    Local(Block& b, const Spec& spec) : Regression(b, spec, 1) {
        context = b.vector(z);
        released = ridge.theta;
    }
    i64 numbers() const { return 1; }
    DPB_INLINE double prepare(const double* x, double reward, bool) {
        clock->rounds++;
        copy(x, context, z.s);
        node.wide = false;
        node.steps[0] = to_grid((reward - centre()) / width());
        show_pending(1);
        return o.multipliers[1] * o.sensitivity;
    }
    DPB_CALL void commit(const double* value) {
        learn(context, centre() + width() * value[0]);
    }
};
}  // namespace dpb::DPB_ARCH
