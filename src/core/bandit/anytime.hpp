// The anytime bandit: an instrument for the context, a residual for the reward, sometimes a release.
// Between releases nothing private is shown, and arms are picked by the posterior of the last one.
#pragma once
#include "../learner/bank.hpp"
#include "../learner/filter.hpp"
#include "../learner/local.hpp"
#include "../learner/prior.hpp"
#include "../learner/scale.hpp"
#include "../release/anytime.hpp"
#include "common.hpp"

namespace dpb::DPB_ARCH {
struct Anytime : Common {
    static constexpr bool is_whole = true, has_answers = true;
    // Of clicks: the standard deviation of differences between arms, in rates, and the least that the rate
    // and the reward's variance are taken to be, in widths of the range.
    static constexpr double DIFFERENCES_OF_RATE = 0.5, LEAST_RATE = 1e-4, LEAST_VARIANCE = 1e-5;
    // Scales tried on the prior's variance: the lowest, how many, each four times the one before; what a step
    // away from 1 must explain, in nats; and what weight is worth the work.
    static constexpr double LOWEST_SCALE = 1.0 / 16, STEP_IN_NATS = 1.5, LEAST_WEIGHT = 1e-3;
    static constexpr int SCALES = 6;
    // What play teaches anyway: so many times what is known, shaped like what was played of late.
    static constexpr double TAUGHT = 100;
    // Lots need so much of the posterior's deviation where contexts differ from round to round: whatever is
    // played then teaches about all arms.
    static constexpr double NARROWER = 0.2;
    // Residuals are at the window's edge if they reach so much of the way to it, on average.
    static constexpr double AT_EDGE = 0.95;
    struct Times {
        i64 due, releases, refresh_due, released_at;
    };
    Size l, items;  // of θ⁺, and of an item: two numbers more where the scale is found
    Schedule schedule;
    Fading sum;
    Filter filter;
    Bank bank;
    Prior prior;
    Scale scale;
    LocalPhase local;
    Times* times;
    double *estimate, *bonus, *covariance, *u, *longer, *mean, *second;
    double* prior_scale;  // the likeliest
    double* rate;  // of clicks: their released mean plus one standard deviation, 0 before the first release

    Anytime(Block& b, const Spec& spec)
        : Common(b, spec, spec.dim + 1 + Scale::FREE),
          l(spec.dim + 1),
          items(spec.dim + 1 + (spec.find_scale ? Scale::FREE : 0)),
          schedule{spec.knee, spec.ratio, spec.life},
          sum(b, items.n),
          filter(b, spec.dim + 1),
          bank(b, spec.dim + 1, spec.memories, spec.memory_alone),
          prior(b, spec.dim, spec.public_contexts),
          scale(b, root(spec.reward_variance), spec.window, spec.high - spec.low),
          local(b, spec) {
        times = b.take<Times>(1);
        estimate = b.vector(l);
        bonus = b.matrix(z);
        covariance = b.matrix(l);
        u = b.vector(items);
        longer = b.vector(l);
        mean = b.vector(l);
        second = b.take<double>(l.square() + 2 * l.s);
        rate = b.take<double>(1);
        prior_scale = b.take<double>(1);
        if (!b.at) return;
        *prior_scale = 1;
        times->due = spec.first;
        conclude();
    }
    i64 numbers() const { return items.n; }
    i64 numbers_now() const { return local.has(clock->rounds) ? 1 : items.n; }
    NoiseKind noise_now() const { return local.has(clock->rounds) ? NoiseKind::response : o.noise; }
    bool quiet(const double*) const {
        const i64 t = clock->rounds + 1;
        return !local.takes(t) && local.summed(t) < times->due;
    }
    const double* matrix() const { return bonus; }
    DPB_INLINE void look(const Slate& slate) {
        if (local.looks(clock->rounds) && slate.arms > 1 && !local.look(slate)) local.end(clock->rounds);
        if (!prior.is_public && (clock->decisions < LOOKED_AT || clock->decisions % 8 == 0))
            prior.look(slate);
    }
    DPB_CALL double prepare(const double* x, double reward, bool) {
        const int d = z.n;
        i64 t = ++clock->rounds;
        if (clock->decisions < t) {
            // No slate was seen for this reward: a delayed one, or an arm picked elsewhere.
            clock->decisions = t;
            if (!prior.is_public) prior.look_at_one(x);
        }
        if (local.has(t) && !local.takes(t)) local.end(t - 1);
        if (!prior.is_public && t >= times->refresh_due) refresh();
        // The instrument: the context and a constant, whitened, at norm 1. Whatever it is, it is public.
        double total = 0, per_size = 1 / *prior.size;
        for (int i = 0; i < d; i++) {
            longer[i] = x[i] * per_size;
            total += magnitude(x[i]);
        }
        longer[d] = total > 0;  // a context of zeros says nothing about θ
        prior.whiten(longer, u);
        double square = dot(l, u, u), unit = square > 0 ? 1 / root(square) : 0;
        for (int i = 0; i < d; i++) longer[i] = x[i];
        longer[d] = 1;
        for (int i = 0; i < l.s; i += 4) store(u + i, load(u + i) * splat(unit));
        // The residual, clipped to the window and brought to a width of 1. No θ can make it wider.
        const double variance = variance_of_prediction();
        const double half = o.find_scale && !local.has(t) ? half_window(variance) : o.window, weight = 0.5 / half;
        double prediction = dot(l, longer, estimate);
        prediction = smaller(larger(prediction, o.low + half), o.high - half);
        if (local.has(t)) {
            filter.see(longer, u, 0, 0);  // played, and in no sum
            local.ask(longer, prediction);
            node.wides[0] = to_grid(smaller(larger(reward - prediction, -half), half) * weight);
            node.wide = true;
            show_pending(1);
            return o.local_scale;
        }
        const double residual = smaller(larger(reward - prediction, -half), half);
        double rides[Scale::FREE];
        if (o.find_scale) scale.see(magnitude(residual), half, variance, rides);
        sum.add(residual * weight, u, o.find_scale ? Scale::FREE : 0, rides);
        filter.see(longer, u, weight, prediction);
        const i64 s = local.summed(t);
        if (s < times->due) return NO_RELEASE;
        double rho = schedule.kept(s);
        sum.show(Schedule::shown(rho), rho, node.wides);
        node.wide = true;
        show_pending(items.n);
        return o.scale;
    }
    // Whether all residuals reach the edge of their windows, as those of clicks do, by what was released of
    // them. Any window would then only cut them off.
    DPB_INLINE bool at_edge() const {
        const double known = scale.found->share_information;
        if (!(o.widest > o.window && known > 0)) return false;
        return scale.found->share_target / known - 1 / (Scale::BY_DISTANCE * root(known)) > AT_EDGE;
    }
    // Half the window of a residual whose prediction has this variance.
    DPB_INLINE double half_window(double variance) const { return at_edge() ? o.widest : scale.window(variance); }
    // Of contexts and of releases, so the same for every neighbour.
    DPB_INLINE double variance_of_prediction() const {
        double variance = 0;
        if (o.find_scale)
            for (int i = 0; i < l.n; i++) variance += longer[i] * dot(l, covariance + (i64)i * l.s, longer);
        return larger(variance, 0);
    }
    DPB_CALL void commit(const double* value) {
        const i64 t = clock->rounds, s = local.summed(t);
        if (local.has(t)) {
            if (local.add(t, *value * 2 * o.window)) read_answers();
            return;
        }
        double rho = schedule.kept(s);
        times->due = schedule.next(s);
        if (o.find_scale) {
            const double off = width() * scale.found->distance_design;  // by what windows cut off, at most
            const double known = scale.learn(value + l.n, Schedule::shown(rho), rho, larger(o.scale, 1e-6));
            if (known < 1) {
                filter.doubt(off);
                bank.doubt(known);
            }
        }
        learn(value, Schedule::shown(rho), rho, o.scale);
    }
    DPB_CALL void read_answers() {
        filter.settle();
        read_anew(local.rows, local.values);
        local.forget();
    }
    DPB_CALL void learn(const double* value, double q, double rho, double noise) {
        if (local.times->waiting) read_answers();  // a slate ended their phase
        // Without noise (ε = ∞) a little is assumed, so that few rewards do not say everything.
        filter.learn(value, q, rho, larger(noise, 1e-6), reward_variance());
        read_anew(filter.seen, filter.surprise);
    }
    DPB_CALL void read_anew(const double* rows, const double* values) {
        const i64 t = clock->rounds;
        bank.learn(rows, values, (double)(t - times->released_at), prior.precision, prior.pull,
                   times->releases == 0, prior.shares_features());
        // What was played long ago is forgotten soon: the share of round j is (j/t)²⁰, of answers (j/t)⁵.
        if (times->released_at) {
            const double left = (double)times->released_at / (double)t, square = left * left;
            double kept = square * square * left;
            if (!local.has(t)) kept *= kept, kept *= kept;
            for (i64 i = 0; i < l.square(); i++) filter.played[i] *= kept;
        }
        times->released_at = t;
        times->releases++;
        conclude();
    }
    // Contexts offered so far change the whitener: every round at first, then as their number grows by
    // a twentieth. In high dimension, where that takes long, more rarely.
    DPB_CALL void refresh() {
        i64 t = clock->rounds, later = t < 50 ? 1 : t / 20;
        if (z.n > 64 && later < t * z.n / 1000) later = t * z.n / 1000;
        times->refresh_due = t + later;
        if (times->releases) refresh_prior(*prior_scale);
        else conclude();
    }
    // Clicks are 0 or 1: how often they come says how much they vary, and how far arms can differ. The
    // rate is what releases say of it: all of this is post-processing.
    bool follows_rate() const {
        switch (o.rewards) {
            case RewardKind::numbers: return false;
            case RewardKind::clicks: return true;
        }
        return false;
    }
    double reward_variance() const {
        if (o.find_scale) {
            // What is not cut off varies more.
            const double own = scale.found->residual_deviation * (at_edge() ? o.widest / o.window : 1);
            return own * own;
        }
        if (!follows_rate() || !times->releases) return o.reward_variance;
        return larger(*rate * (width() - *rate), LEAST_VARIANCE * width() * width());
    }
    double differences() const {
        const double usual = DIFFERENCES * width() * width();
        // Arms without features do not tell of each other: a narrow prior would end their trial.
        if (!follows_rate() || !times->releases || !prior.has_features()) return usual;
        const double sd = DIFFERENCES_OF_RATE * larger(*rate, LEAST_RATE * width());
        return smaller(usual, sd * sd);
    }
    void refresh_prior(double factor) { prior.refresh(centre(), width(), factor * differences()); }
    // The same contexts, another scale: much less work.
    void scale_prior(double factor) { prior.believe(centre(), width(), factor * differences()); }
    void note_rate() {
        double mean, sd;
        prior.level(estimate, covariance, &mean, &sd);
        *rate = smaller(larger(mean - o.low, 0) + sd, 0.5 * width());
    }
    // Read the posterior, with the prior that today's contexts suggest.
    DPB_CALL void conclude() {
        // With public contexts and a prior that is not fitted, it is what it was at the last release.
        if (!times->releases) {
            refresh_prior(1);
            prior.show(estimate, covariance);  // in high dimension, far less work
        } else if (o.empirical_bayes || !bank.has_one_say()) {
            average();
        } else {
            if (follows_rate() || !prior.is_public) refresh_prior(1);
            bank.join(*bank.acting, prior.precision, prior.pull);
            bank.read(estimate, covariance);
        }
        if (follows_rate() && times->releases) note_rate();
        for (int i = 0; i < z.n; i++) {
            released[i] = estimate[i];
            for (int k = 0; k < z.n; k++) bonus[(i64)i * z.s + k] = covariance[(i64)i * l.s + k];
        }
        if (o.policy == PolicyKind::sampled && prior.has_features())
            for (i64 i = 0; i < z.square(); i++) bonus[i] *= NARROWER * NARROWER;
        if (o.neglected && times->releases) forget_what_play_teaches();
    }
    // The posterior's moments over scales of the prior's variance, weighed by what the releases say of them, and
    // over memories. While θ moves, where contexts share all features, the scale is 1: others only blur it.
    DPB_CALL void average() {
        double likely[SCALES], best = -__builtin_inf(), total = 0, factor = LOWEST_SCALE;
        const bool one_scale = !o.empirical_bayes || (*bank.acting && prior.shares_features());
        const double step = local.has(clock->rounds) ? 0 : STEP_IN_NATS;  // answers say at once what sums say late
        refresh_prior(1);
        for (int k = 0; k < SCALES; k++, factor *= 4) {
            likely[k] = -__builtin_inf();
            if (one_scale && factor != 1) continue;
            scale_prior(factor);
            likely[k] = bank.join(*bank.acting, prior.precision, prior.pull) - step * magnitude(k - 2);
            if (likely[k] > best) {
                best = likely[k];
                *prior_scale = factor;
            }
        }
        for (double& one : likely) {
            one = one == -__builtin_inf() ? 0 : exp1(one - best);
            if (one < LEAST_WEIGHT) one = 0;
            total += one;
        }
        clear(estimate, l.s);
        clear(covariance, l.square());
        factor = LOWEST_SCALE;
        for (int k = 0; k < SCALES; k++, factor *= 4) {
            if (!(likely[k] > 0)) continue;
            scale_prior(factor);
            for (i64 m = 0; m < bank.count; m++)
                if (bank.weights[m] > 0) add_moments(m, likely[k] / total * bank.weights[m]);
        }
        for (int i = 0; i < l.n; i++)
            for (int j = 0; j < l.n; j++) covariance[(i64)i * l.s + j] -= estimate[i] * estimate[j];
        scale_prior(*prior_scale);
    }
    // Of memory m under this prior, at this weight.
    DPB_CALL void add_moments(i64 m, double weight) {
        bank.join(m, prior.precision, prior.pull);
        bank.read(mean, second);
        add_scaled(l, estimate, weight, mean);
        for (int i = 0; i < l.n; i++)
            for (int j = 0; j < l.n; j++)
                covariance[(i64)i * l.s + j] += weight * (second[(i64)i * l.s + j] + mean[i] * mean[j]);
    }
    // A bonus for what play will not teach anyway: 2·ln(2 + t)·(Σ⁻¹ + s·A)⁻¹, A being what was played of late.
    DPB_CALL void forget_what_play_teaches() {
        const int d = z.n;
        double *known = bank.rows, *work = second, traced = 0;  // nobody reads either any more
        for (int i = 0; i < d; i++) traced += filter.played[(i64)i * l.s + i];
        if (!(traced > 0) || !invert(z, bonus, known, work)) return;
        const double own = bank.known();
        const double share = local.has(clock->rounds) ? local.taught(clock->rounds, own, traced) : TAUGHT * own / traced;
        for (int i = 0; i < d; i++)
            for (int k = 0; k < d; k++) known[(i64)i * z.s + k] += share * filter.played[(i64)i * l.s + k];
        if (!invert(z, known, bonus, work)) return;
        const double width = 2 * log1(2 + (double)clock->rounds);
        for (i64 i = 0; i < z.square(); i++) bonus[i] *= width;
    }
    // Learn from a log's noisy sum, before round 1: all of it is shown and nothing kept.
    bool start(const double* value, double noise) {
        local.end(0);
        learn(value, 1, 0, noise);  // a log has no free numbers: zeros stand for them
        return true;
    }
    bool conclude_again() {
        refresh_prior(*prior_scale);
        return true;
    }
    void fields(Fields& f) {
        common_fields(f);
        sum.fields(f);
        filter.fields(f);
        bank.fields(f);
        prior.fields(f);
        if (o.find_scale) scale.fields(f);
        local.fields(f);
        f.number("due", &times->due);
        f.number("releases", &times->releases);
        f.number("refresh_due", &times->refresh_due);
        f.number("released_at", &times->released_at);
        f.real("rate", rate);
        f.real("prior_scale", prior_scale);
        f.matrix("bonus", bonus, z);
        f.vector("estimate", estimate, l.n);
        f.matrix("posterior", covariance, l);
        f.vector("instrument", u, l.n);
    }
};
}  // namespace dpb::DPB_ARCH
