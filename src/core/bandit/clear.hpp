// Bandits whose learner sees each reward as it is released: not at all (random play), in the clear
// (LinUCB), or with noise of its own (local).
#pragma once
#include "../learner/ridge.hpp"
#include "common.hpp"

namespace dpb {
namespace DPB_ARCH {
struct RandomPlay : Common {
    static constexpr bool is_whole = false;
    RandomPlay(Block& b, const Spec& spec) : Common(b, spec, 0) {}
    i64 numbers() const { return 0; }
    bool quiet(const double*) const { return true; }
    const double* matrix() const { return nullptr; }
    DPB_CALL int choose(const Slate& slate, double alpha, double* scores) {
        return choose_by(View{released, nullptr}, slate, alpha, scores);
    }
    DPB_INLINE double prepare(const double*, double, bool) {
        clock->rounds++;
        return NO_RELEASE;
    }
    void commit(const double*) {}
    void fields(Fields& f) { common_fields(f); }
};

struct InTheClear : Common {
    static constexpr bool is_whole = false;
    Ridge ridge;
    InTheClear(Block& b, const Spec& spec) : Common(b, spec, 0), ridge(b, spec.dim, spec.ridge) {
        released = ridge.theta;
    }
    i64 numbers() const { return 0; }
    bool quiet(const double*) const { return true; }
    const double* matrix() const { return ridge.inverse; }
    DPB_CALL int choose(const Slate& slate, double alpha, double* scores) {
        return choose_by(View{ridge.theta, ridge.inverse}, slate, alpha, scores);
    }
    DPB_CALL double prepare(const double* x, double reward, bool) {
        clock->rounds++;
        double quadratic = ridge.add_context(x);
        ridge.add_reward(x, reward, quadratic);
        if (ridge.due(quadratic)) ridge.refresh();
        return NO_RELEASE;
    }
    void commit(const double*) {}
    bool conclude_again() {
        ridge.refresh();
        return true;
    }
    void fields(Fields& f) {
        common_fields(f);
        ridge.fields(f);
    }
};

struct Local : Common {
    static constexpr bool is_whole = true;
    Ridge ridge;
    double* context;
    Local(Block& b, const Spec& spec) : Common(b, spec, 1), ridge(b, spec.dim, spec.ridge) {
        context = b.vector(z);
        released = ridge.theta;
    }
    i64 numbers() const { return 1; }
    bool quiet(const double*) const { return false; }
    const double* matrix() const { return ridge.inverse; }
    DPB_CALL int choose(const Slate& slate, double alpha, double* scores) {
        return choose_by(View{ridge.theta, ridge.inverse}, slate, alpha, scores);
    }
    DPB_INLINE double prepare(const double* x, double reward, bool) {
        clock->rounds++;
        copy(x, context, z.s);
        node.wide = false;
        node.steps[0] = to_grid((reward - centre()) / width());
        show_pending(1);
        return o.multipliers[1] * o.sensitivity;
    }
    DPB_CALL void commit(const double* value) {
        double quadratic = ridge.add_context(context);
        ridge.add_reward(context, centre() + width() * value[0], quadratic);
        if (ridge.due(quadratic)) ridge.refresh();
    }
    void fields(Fields& f) {
        common_fields(f);
        ridge.fields(f);
    }
};
}  // namespace DPB_ARCH
}  // namespace dpb
