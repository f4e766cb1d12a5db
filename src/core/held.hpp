// A bandit with its memory and its gate, behind the interface that the module sees: every way in
// passes `admit`; loops for simulations and audits run the very functions that ship.
#pragma once
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <malloc.h>
#endif
#include "bandit/anytime.hpp"
#include "bandit/arms.hpp"
#include "bandit/batches.hpp"
#include "bandit/clear.hpp"
#include "bandit/joint.hpp"
#include "bandit/moments.hpp"
#include "bandit/pair.hpp"
#include "bandit/parameter.hpp"

namespace dpb::DPB_ARCH {
struct Here {
    void* at;
};
}  // namespace dpb::DPB_ARCH
inline void* operator new(size_t, dpb::DPB_ARCH::Here place) { return place.at; }

namespace dpb::DPB_ARCH {
// Windows has functions of its own for aligned memory.
#if defined(_WIN32)
DPB_INLINE void* aligned(size_t size) { return _aligned_malloc(size, 64); }
DPB_INLINE void give_back(void* at) { _aligned_free(at); }
#else
DPB_INLINE void* aligned(size_t size) { return aligned_alloc(64, size); }
DPB_INLINE void give_back(void* at) { free(at); }
#endif
// Zeroed memory, or nothing where there is not so much.
DPB_INLINE void* fresh_if_there(size_t bytes) {
    size_t size = (bytes + 63) / 64 * 64 + 64;
    void* at = aligned(size);
    if (at) memset(at, 0, size);
    return at;
}
DPB_INLINE void* fresh(size_t bytes) {
    void* at = fresh_if_there(bytes);
    if (!at) abort();
    return at;
}

// With context_noise: the contexts offered last, how they were perturbed, and which were chosen.
// Whoever reports a reward names the context as it was offered.
struct Offered {
    double *given, *moved;
    i64 *chosen, count, arms, dim;
    void forget() {
        give_back(given);
        give_back(moved);
        give_back(chosen);
    }
    void keep(const double* contexts, i64 arms, i64 d) {
        make_room(arms, d);
        copy(contexts, given, arms * d);
    }
    void become(const Offered& other) {
        if (!other.given) return;
        make_room(other.arms, other.dim);
        copy(other.given, given, arms * dim);
        copy(other.moved, moved, arms * dim);
        for (i64 n = 0; n < other.count; n++) choose(other.chosen[n]);
    }
    void make_room(i64 many, i64 d) {
        forget();
        arms = many;
        dim = d;
        count = 0;
        given = (double*)fresh((size_t)(arms * d) * 8);
        moved = (double*)fresh((size_t)(arms * d) * 8);
        chosen = (i64*)fresh((size_t)arms * 8);
    }
    void choose(i64 arm) {
        if (chosen) chosen[count++] = arm;
    }
    const double* find(const double* x) const {
        for (i64 n = count - 1; n >= 0; n--)
            if (!memcmp(given + chosen[n] * dim, x, (size_t)dim * 8)) return moved + chosen[n] * dim;
        return nullptr;
    }
};

template <class Bandit> struct Held final : Core {
    Spec spec;
    Gate gate;
    size_t bytes;
    char* memory;
    double *x, *board;
    i64 room, limit;  // scores that fit; rewards that may be learned
    bool waiting, held;
    Offered offered;
    Bandit bandit;

    static size_t needed(const Spec& o) {
        Block dry{nullptr, 0};
        Bandit probe(dry, o);
        return dry.used;
    }
    static Gate gate_of(const Spec& o) {
        double most = 1 + TOLERANCE;
        return Gate{1 / o.max_norm, most * most, o.l1_limit * most, o.one_hot, o.clips, o.low, o.high};
    }
    Held(const Spec& given, Block b)
        : spec(given),
          gate(gate_of(given)),
          bytes(needed(given)),
          memory(b.at),
          room(0),
          limit(limit_of(given)),
          waiting(false),
          held(false),
          offered(),
          bandit(b, spec) {
        x = (double*)fresh((size_t)bandit.z.s * 8);
        board = nullptr;
    }
    // Rounding in Toeplitz buffers is paid for up to 2^48 rewards (release/toeplitz.py).
    static i64 limit_of(const Spec& o) {
        if (o.horizon) return o.horizon;
        if (o.learner == LearnerKind::ridge && o.release == ReleaseKind::toeplitz) return (i64)1 << 48;
        // Numbers of simulated starts are 64 to a round.
        bool starts = o.learner == LearnerKind::ridge && o.release == ReleaseKind::pan_private;
        return ((i64)1 << (starts ? 57 : MOST_LEVELS)) - 1;  // the next one would need a level more
    }
    void destroy() override {
        give_back(memory);
        give_back(x);
        give_back(board);
        offered.forget();
        give_back(this);
    }
    void hold(bool now) override { held = now; }
    void become(const Core& from) override {
        const auto& other = static_cast<const Held&>(from);
        memcpy(memory, other.memory, bytes);
        waiting = other.waiting;
        offered.become(other.offered);
    }
    // ------------------------------------------------------------------------------- choosing
    void make_room(i64 arms) {
        if (arms <= room) return;
        give_back(board);
        room = room_for(arms);
        board = (double*)fresh((size_t)(3 * room + 8) * 8);  // scores, and what lots need
    }
    int check(const double* contexts, i64 arms, i64 dim) override {
        if (dim != spec.dim) return DIMENSION;
        if (arms < 1) return NO_ARMS;
        for (i64 j = 0; j < arms; j++)
            if (int code = gate.admit(contexts + j * dim, (int)dim)) return code;
        return FINE;
    }
    DPB_CALL int choose(const Slate& slate, double alpha) {
        bandit.look(slate);
        return bandit.choose_by(View{bandit.released, bandit.matrix()}, slate, alpha, board);
    }
    int select(const double* contexts, i64 arms, i64 dim, double alpha) override {
        if (held) return BUSY;
        if (int code = check(contexts, arms, dim)) return code;
        make_room(arms);
        Slate slate{contexts, nullptr, arms, (int)dim};
        if (spec.context_noise > 0) {
            offered.keep(contexts, arms, dim);
            perturb_rows(slate, (u64)bandit.clock->decisions, offered.moved);
            slate.pool = offered.moved;
        }
        int arm = choose(slate, alpha);
        offered.choose(arm);
        return arm;
    }
    int rank(const double* contexts, i64 arms, i64 dim, double alpha, i64 k, i64* out) override {
        u64 decision = (u64)bandit.clock->decisions;
        int first = select(contexts, arms, dim, alpha);
        if (first < 0) return first;
        out[0] = first;
        for (i64 n = 1; n < k; n++) {
            board[out[n - 1]] = -__builtin_inf();
            out[n] = pick(board, arms, spec.ties_key, decision);
            offered.choose(out[n]);
        }
        return FINE;
    }
    // The paper leaves x + z as it is, but then noise for contexts of norm ≤ max_norm would not cover it.
    void perturb_rows(const Slate& slate, u64 index, double* out) {
        const i64 d = spec.dim, numbers = slate.arms * d;
        double* noise = (double*)fresh((size_t)(numbers + 8) * 8);
        add_normals(spec.contexts_key, index, numbers, spec.context_noise, nullptr, noise);
        for (i64 j = 0; j < slate.arms; j++) {
            double square = 0;
            for (i64 i = 0; i < d; i++) {
                out[j * d + i] = slate.row(j)[i] + noise[j * d + i];
                square += out[j * d + i] * out[j * d + i];
            }
            double factor = square > 0 ? smaller(1, spec.max_norm / root(square)) : 1;
            for (i64 i = 0; i < d; i++) out[j * d + i] *= factor;
        }
        give_back(noise);
    }
    // ------------------------------------------------------------------------------- learning
    int admit(const double* given, i64 dim, double reward) override {
        if (dim != spec.dim) return DIMENSION;
        return admit_row(given, reward);
    }
    DPB_INLINE int admit_row(const double* given, double reward) const {
        if (waiting || held) return BUSY;
        if (int code = gate.admit(given, (int)spec.dim)) return code;
        if (int code = gate.admit_reward(reward)) return code;
        return bandit.clock->rounds >= limit ? HORIZON : FINE;
    }
    DPB_INLINE void take(const double* given) {
        for (i64 i = 0; i < spec.dim; i++) x[i] = given[i];
    }
    // The context as it was scored: with context_noise perturbed, anew if it was not offered last.
    DPB_INLINE void take_as_scored(const double* given) {
        if (spec.context_noise > 0) return take_moved(given);
        take(given);
    }
    // A row is read once, and what is admitted is what was read: the caller's array may change under
    // another thread's hands, which NumPy lets run without Python's lock.
    DPB_INLINE int take_row(const double* given, double reward) {
        take(given);
        if (int code = admit_row(x, reward)) return code;
        if (spec.context_noise > 0) take_moved(x);
        return FINE;
    }
    DPB_CALL void take_moved(const double* given) {
        if (const double* moved = offered.find(given)) return take(moved);
        const u64 unseen = 1ull << 40;  // perturbations of contexts that were not offered last
        perturb_rows(Slate{given, nullptr, 1, (int)spec.dim}, unseen + (u64)bandit.clock->rounds, x);
    }
    DPB_INLINE double clip(double reward) {
        double inside = gate.clip(reward);
        // A count of rewards in memory is not pan-private.
        bool counted = spec.learner != LearnerKind::ridge || spec.release != ReleaseKind::pan_private;
        bandit.clock->clipped += inside != reward && counted;
        return inside;
    }
    i64 growth() const override { return bandit.visit->growth; }
    int learn(const double* given, i64 dim, double reward, i64 counted) override {
        if (dim != spec.dim) return DIMENSION;
        if (int code = take_row(given, reward)) return code;
        if (!bandit.quiet(x)) return RELEASE_IS_DUE;
        bandit.visit->counted = counted;
        bandit.prepare(x, clip(reward), true);
        return FINE;
    }
    int learn_many(const double* xs, const double* rs, i64 count, i64* done) override {
        *done = 0;
        for (i64 n = 0; n < count; n++)
            if (int code = admit(xs + n * spec.dim, spec.dim, rs[n])) return code;
        if (bandit.clock->rounds + count > limit) return HORIZON;
        for (; *done < count; ++*done) {
            double reward = rs[*done];
            if (int code = take_row(xs + *done * spec.dim, reward)) return code;
            if (!bandit.quiet(x)) return RELEASE_IS_DUE;
            bandit.prepare(x, clip(reward), true);
        }
        return FINE;
    }
    double prepare(const double* given, double reward, bool in_public_set, i64 counted) override {
        take_as_scored(given);
        bandit.visit->counted = counted;
        double scale = bandit.prepare(x, clip(reward), in_public_set);
        waiting = scale != NO_RELEASE;
        return scale;
    }
    double prepare_unchecked(const double* given, double reward, bool in_public_set) override {
        take(given);
        return bandit.prepare(x, reward, in_public_set);
    }
    void commit(const double* value) override {
        commit_unchecked(value);
        waiting = false;
    }
    void commit_unchecked(const double* value) override {
        i64 n = numbers();
        copy(value, bandit.noisy, n);
        for (i64 i = n; i < n + 8; i++) bandit.noisy[i] = 0;
        bandit.commit(bandit.noisy);
    }
    // A whole round with simulated noise, of a clipped reward in `x`.
    DPB_INLINE double round(double reward, bool in_public_set, Keys keys) {
        bandit.begin_simulated(keys.start);
        double scale = bandit.prepare(x, reward, in_public_set);
        if (scale != NO_RELEASE) {
            u64 index = (u64)bandit.clock->rounds;
            const i64 n = numbers();
            add_noise(bandit.noise_now(), keys.noise, index, n, scale, bandit.pending, bandit.noisy);
            for (i64 i = n; i < n + 8; i++) bandit.noisy[i] = 0;
            bandit.commit(bandit.noisy);
        }
        return scale;
    }
    double simulate(const double* given, double reward, bool in_public_set, Keys keys, i64 counted) override {
        take_as_scored(given);
        bandit.visit->counted = counted;
        return round(clip(reward), in_public_set, keys);
    }
    i64 starts(i64* levels) override { return bandit.starts(levels); }
    void begin(i64 level, const __int128* noise) override { bandit.begin(level, noise); }
    void begin_simulated(u64 key) override { bandit.begin_simulated(key); }
    // ------------------------------------------------------------------------------- looking
    i64 numbers() const override {
        if constexpr (Bandit::has_answers) return bandit.numbers_now();
        return bandit.numbers();
    }
    i64 shown_numbers() const override { return bandit.numbers() ? bandit.numbers() : spec.dim; }
    bool waits() const override { return waiting; }
    const double* pending() const override { return bandit.pending; }
    const __int128* pending_whole() override {
        return Bandit::is_whole ? bandit.node.widen(numbers()) : nullptr;
    }
    const double* theta() const override { return bandit.released; }
    const double* matrix() const override { return bandit.matrix(); }
    const double* bonuses(double alpha) override { return bandit.bonuses_of(alpha); }
    i64 stride() const override { return bandit.z.s; }
    i64 fields(Field* out) override {
        Fields found{out, 0};
        bandit.fields(found);
        return found.count;
    }
    bool start(const double* noisy, double scale) override { return bandit.start(noisy, scale); }
    bool conclude() override { return bandit.conclude_again(); }
    void loaded() override {
        bandit.loaded();
        waiting = false;
    }
    size_t size() const override { return bytes; }
    void save(char* out) const override { memcpy(out, memory, bytes); }
    void load(const char* from) override {
        memcpy(memory, from, bytes);
        waiting = false;
    }
    void reset() override {
        memset(memory, 0, bytes);
        Block block{memory, 0};
        new (Here{&bandit}) Bandit(block, spec);
        waiting = false;
    }
    // ------------------------------------------------------------------------------- playing
    int play(const Rounds& given, const Record& record, Keys keys) override {
        const i64 d = spec.dim, arms = given.arms;
        make_room(arms);
        double* perturbed = nullptr;
        if (spec.context_noise > 0) perturbed = (double*)fresh((size_t)(arms * d) * 8);
        int code = FINE;
        i64 at = 0;
        for (i64 t = 0; t < given.count; t++) {
            const i64* shown = given.shown + t * arms;
            const double* means = given.means + t * arms;
            Slate slate{given.pool, shown, arms, (int)d, (given.count - t - 1) * arms};
            if (perturbed) {
                perturb_rows(slate, (u64)bandit.clock->decisions, perturbed);
                slate = Slate{perturbed, nullptr, arms, (int)d};
            }
            double alpha = record.alphas[record.alpha_count == 1 ? 0 : t];
            // Which reward is read is known when an arm is chosen: by then all of them are near.
            for (i64 j = 0; given.rewards && j < arms; j += 8) __builtin_prefetch(given.rewards + t * arms + j);
            int arm = choose(slate, alpha);
            double best = largest_of(means, arms);
            double reward = given.rewards ? given.rewards[t * arms + arm] : means[arm] + given.noise[t];
            if ((code = gate.admit_reward(reward))) break;
            record.totals[0] += reward;
            record.totals[1] += best - means[arm];
            if (record.arms) record.arms[t] = arm;
            take(slate.row(arm));
            bool known = !given.in_public_set || given.in_public_set[shown[arm]];
            round(clip(reward), known, keys);
            if (at < record.count && record.at[at] == t) {
                double square = record.truth ? 0 : __builtin_nan("");
                for (i64 i = 0; record.truth && i < d; i++) {
                    double off = bandit.released[i] - record.truth[i];
                    square += off * off;
                }
                double* out = record.out + 3 * at++;
                out[0] = record.totals[0];
                out[1] = record.totals[1];
                out[2] = root(square);
            }
        }
        give_back(perturbed);
        return code;
    }
    // ------------------------------------------------------------------------------- auditing
    // Learn a stream; record the clean value and the scale of every release. `forced`: the noisy values
    // are those of an earlier run, as a neighbour looks to someone who saw that run.
    void trace(const Stream& s, Keys keys, bool forced, double* noisy, double* values,
               double* scales) override {
        const i64 width = shown_numbers(), n = bandit.numbers();
        reset();
        for (i64 t = 0; t < s.count; t++) {
            double *shown = noisy + t * width, *clean = values + t * width;
            take(s.xs + t * spec.dim);
            bandit.begin_simulated(keys.start);
            scales[t] = bandit.prepare(x, gate.clip(s.rs[t]), !s.in_public_set || s.in_public_set[t]);
            clear(clean, width);
            if (n == 0) {
                if (spec.learner == LearnerKind::none) continue;
                scales[t] = 0;  // in the clear: θ is released as it is
                copy(bandit.released, clean, width);
                continue;
            }
            if (scales[t] == NO_RELEASE) continue;
            const i64 count = numbers();  // what is beyond stays 0
            copy(bandit.pending, clean, count);
            if (!forced) {
                add_noise(bandit.noise_now(), keys.noise, (u64)t + 1, count, scales[t], bandit.pending, bandit.noisy);
                copy(bandit.noisy, shown, count);
            }
            commit_unchecked(shown);
        }
    }
    // Log-likelihood ratios of whole transcripts: a twin learns the other stream and is told the same
    // noisy values, so that both clean values are known for the transcript at hand.
    void scores(const Stream& own, const Stream& other, Core* twin, u64 key, i64 first, i64 count,
                double* out) override {
        const i64 n = bandit.numbers(), d = spec.dim;
        for (i64 run = 0; run < count; run++) {
            reset();
            twin->reset();
            Keys keys{lot(key, 2 * (u64)(first + run), 0), lot(key, 2 * (u64)(first + run) + 1, 0)};
            double total = 0;
            for (i64 t = 0; t < own.count; t++) {
                take(own.xs + t * d);
                bool known = !own.in_public_set || own.in_public_set[t];
                bandit.begin_simulated(keys.start);
                double scale = bandit.prepare(x, gate.clip(own.rs[t]), known);
                twin->begin_simulated(keys.start);
                twin->prepare_unchecked(other.xs + t * d, gate.clip(other.rs[t]), known);
                if (n == 0 && spec.learner != LearnerKind::none)
                    total += log_ratio(NoiseKind::none, d, bandit.released, twin->theta(), bandit.released, 0);
                if (scale == NO_RELEASE) continue;
                const i64 m = numbers();
                const NoiseKind kind = bandit.noise_now();
                add_noise(kind, keys.noise, (u64)bandit.clock->rounds, m, scale, bandit.pending, bandit.noisy);
                total += log_ratio(kind, m, bandit.noisy, twin->pending(), bandit.pending, scale);
                twin->commit_unchecked(bandit.noisy);
                for (i64 i = m; i < m + 8; i++) bandit.noisy[i] = 0;
                bandit.commit(bandit.noisy);
            }
            out[run] = total;
        }
    }
};

template <class Bandit> Made hold(const Spec& o) {
    void* memory = fresh_if_there(Held<Bandit>::needed(o));
    if (!memory) return {nullptr, true};
    return {new (Here{fresh(sizeof(Held<Bandit>))}) Held<Bandit>(o, Block{(char*)memory, 0}), true};
}
}  // namespace dpb::DPB_ARCH
