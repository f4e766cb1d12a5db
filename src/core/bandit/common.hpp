// What every bandit has: its public choices, its clock, the released parameter and scratch for scores.
// One round is choose, then prepare (→ noise →) commit. `prepare` is the only verb that sees a reward.
#pragma once
#include "../admit.hpp"
#include "../fields.hpp"
#include "../fixed.hpp"
#include "../noise.hpp"
#include "../policy/policy.hpp"

namespace dpb::DPB_ARCH {
struct Clock {
    i64 rounds, decisions, clipped, outside;  // outside: 1 once a context was not among the public ones
};
// What was counted of the person whose round it is, for this round alone, and by how much it grew. A row
// that nobody set it for is a stranger's.
struct Visit {
    i64 counted, growth;
};
// A bandit is this with `prepare`, `fields` and what it does otherwise than said here.
struct Common {
    static constexpr bool is_whole = false;  // whether it releases whole numbers
    static constexpr bool has_answers = false;  // whether some releases are one number, with noise of their own
    const Spec& o;
    Size z;
    Clock* clock;
    Visit* visit;
    double* released;  // θ as everybody may see it
    double *pending, *noisy;
    Node node;  // the clean numbers to release
    Desk desk;
    Common(Block& b, const Spec& spec, i64 numbers) : o(spec), z(spec.dim), desk(b, z, spec.policy) {
        clock = b.take<Clock>(1);
        visit = b.take<Visit>(1);
        released = b.vector(z);
        pending = b.take<double>(numbers + 16);
        noisy = b.take<double>(numbers + 16);
        node = Node{b.take<i64>(numbers + 4), b.take<whole>(numbers), false};
    }
    DPB_INLINE int choose_by(const View& view, const Slate& slate, double alpha, double* scores) {
        u64 decision = (u64)clock->decisions++;
        if (is_held_out(o.holdout, o.ties_key, decision)) clear(scores, slate.arms);
        else score_by(o.policy, z, view, slate, alpha, o.ties_key, decision, desk, scores);
        return pick(scores, slate.arms, o.ties_key, decision);
    }
    // The clean value, in doubles, as audits and simulations see it.
    DPB_INLINE void show_pending(i64 numbers) { node.show(numbers, pending); }
    double centre() const { return 0.5 * (o.low + o.high); }
    double width() const { return o.high - o.low; }
    i64 numbers() const { return o.dim; }  // in a release, at most
    NoiseKind noise_now() const { return o.noise; }  // of what is pending
    bool quiet(const double*) const { return false; }
    void look(const Slate&) {}
    void commit(const double*) {}
    const double* bonuses_of(double) { return nullptr; }
    i64 starts(i64*) const { return 0; }
    void begin(i64, const whole*) {}
    void begin_simulated(u64) {}
    bool start(const double*, double) { return false; }
    bool conclude_again() { return false; }
    void loaded() {}
    void common_fields(Fields& f) {
        f.number("rounds", &clock->rounds);
        f.number("decisions", &clock->decisions);
        f.number("clipped", &clock->clipped);
        f.number("outside", &clock->outside);
        f.vector("theta", released, z.n);
    }
};
}  // namespace dpb::DPB_ARCH
