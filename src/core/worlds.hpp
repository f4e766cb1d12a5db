// Rounds of simulated worlds, drawn a lot at a time: without Python, so that whole runs hold no lock.
// dpbandit/worlds/*.py says what each world is; this draws the same rounds.
#pragma once
#include "held.hpp"

namespace dpb::DPB_ARCH {
// Streams of a world's key.
constexpr u64 SLATES = 1ull << 59, NOISES = 1ull << 60, CLICKS = 1ull << 58, RARITIES = 1ull << 57;

struct Simulated final : World {
    WorldSpec o;
    Rounds rounds;
    double *pool, *theta, *arm_means, *contexts, *means, *rewards, *noise, *lots;
    i64 *shown, *deck;

    explicit Simulated(const WorldSpec& spec) : o(spec) {
        const i64 cells = LOT * o.arms, d = o.dim;
        const bool has_pool = o.kind != WorldKind::bernoulli;
        const bool drifts = o.kind == WorldKind::drifting, has_chances = o.kind == WorldKind::clicks;
        const bool clicks = !has_pool || has_chances;  // rewards are 0 or 1
        pool = (double*)fresh((size_t)(o.pool_size * d) * 8);
        theta = (double*)fresh((size_t)d * 8);
        arm_means = (double*)fresh((size_t)o.pool_size * 8);
        contexts = (double*)fresh(drifts ? (size_t)(cells * d) * 8 : 8);
        means = (double*)fresh((size_t)cells * 8);
        rewards = (double*)fresh(clicks ? (size_t)cells * 8 : 8);
        noise = (double*)fresh((size_t)(LOT + 8) * 8);
        const i64 numbers = clicks ? cells : LOT;
        lots = (double*)fresh((size_t)((numbers > d ? numbers : d) + 8) * 8);  // or a round's weights
        shown = (i64*)fresh((size_t)cells * 8);
        deck = (i64*)fresh((size_t)o.pool_size * 8);
        copy(o.theta, theta, d);
        if (has_pool) copy(o.pool.at, pool, o.pool_size * d);
        for (i64 j = 0; j < o.pool_size; j++) {
            if (!has_pool) pool[j * d + j] = 1;
            for (i64 i = 0; i < d; i++) arm_means[j] += pool[j * d + i] * theta[i];
            if (has_chances) arm_means[j] = o.chances.at[j];
        }
        rounds = Rounds{drifts ? contexts : pool, shown, means, clicks ? rewards : nullptr,
                        noise, nullptr, LOT, o.arms};
    }
    void destroy() override {
        give_back(pool), give_back(theta), give_back(arm_means), give_back(contexts), give_back(means);
        give_back(rewards), give_back(noise), give_back(lots), give_back(shown), give_back(deck);
        give_back(this);
    }
    const Rounds& lot(i64 number) override {
        switch (o.kind) {
            case WorldKind::synthetic:
                draw_noise(number);
                for (i64 t = 0; t < LOT; t++) draw_row(number * LOT + t, t, 0, o.pool_size);
                look_up_means();
                break;
            case WorldKind::degenerate: {
                draw_noise(number);
                uniforms(o.key, (u64)number | RARITIES, LOT, lots);
                i64 common = o.pool_size - o.rare_arms;
                for (i64 t = 0; t < LOT; t++) {
                    bool rare = lots[t] < o.rare;
                    draw_row(number * LOT + t, t, rare ? common : 0, rare ? o.rare_arms : common);
                }
                look_up_means();
                break;
            }
            case WorldKind::bernoulli:
                uniforms(o.key, (u64)number | CLICKS, LOT * o.arms, lots);
                for (i64 i = 0; i < LOT * o.arms; i++) {
                    shown[i] = i % o.arms;
                    means[i] = theta[i % o.arms];
                    rewards[i] = lots[i] < means[i] ? 1 : 0;
                }
                break;
            case WorldKind::clicks:
                uniforms(o.key, (u64)number | CLICKS, LOT, lots);
                for (i64 t = 0; t < LOT; t++) draw_row(number * LOT + t, t, 0, o.pool_size);
                look_up_means();
                for (i64 i = 0; i < LOT * o.arms; i++) rewards[i] = lots[i / o.arms] < means[i] ? 1 : 0;
                break;
            case WorldKind::drifting:
                draw_noise(number);
                for (i64 t = 0; t < LOT; t++) draw_row(number * LOT + t, t, 0, o.pool_size);
                drift(number);
                break;
            case WorldKind::moving:
                draw_noise(number);
                for (i64 t = 0; t < LOT; t++) move(number * LOT + t, t);
                break;
        }
        return rounds;
    }

   private:
    void draw_noise(i64 number) {
        add_normals(o.key, (u64)number | NOISES, LOT, o.reward_noise, nullptr, noise);
    }
    void look_up_means() {
        for (i64 i = 0; i < LOT * o.arms; i++) means[i] = arm_means[shown[i]];
    }
    // Different rows first, first + 1, … of `size`, every choice equally likely. A row with an arm
    // twice is drawn again; where that is too likely, a deck is shuffled instead.
    void draw_row(i64 round, i64 t, i64 first, i64 size) {
        i64* row = shown + t * o.arms;
        if (o.arms * o.arms > size) return deal(round, row, first, size);
        for (u64 attempt = 0;; attempt++) {
            u64 stream = SLATES | (u64)round << 8 | attempt;
            bool twice = false;
            for (i64 j = 0; j < o.arms; j += 16) {
                auto w = philox(o.key, stream, counters((u64)j / 4));
                for (int lane = 0; lane < 4; lane++) {
                    const u64 words[4] = {w.a[lane], w.b[lane], w.c[lane], w.d[lane]};
                    for (int k = 0; k < 4 && j + 4 * lane + k < o.arms; k++)
                        row[j + 4 * lane + k] = first + (i64)((words[k] * (u64)size) >> 32);
                }
            }
            for (i64 j = 1; j < o.arms; j++)
                for (i64 k = 0; k < j; k++) twice |= row[j] == row[k];
            if (!twice || attempt == 255) return;
        }
    }
    void deal(i64 round, i64* row, i64 first, i64 size) {
        for (i64 j = 0; j < size; j++) deck[j] = first + j;
        for (i64 j = 0; j < o.arms; j++) {
            u64 word = dpb::DPB_ARCH::lot(o.key, SLATES | (u64)round << 8, (u64)j) >> 32;
            i64 other = j + (i64)((word * (u64)(size - j)) >> 32);
            i64 own = deck[other];
            deck[other] = deck[j];
            row[j] = deck[j] = own;
        }
    }
    // θ is the row of the path that the round falls into; after the path it stays where it is.
    void move(i64 round, i64 t) {
        const i64 now = round < o.path_rounds ? round : o.path_rounds - 1;
        const i64 row = now * o.path.rows / o.path_rounds;
        draw_row(round, t, 0, row ? o.pool_size : o.pool_size - o.hidden);
        for (i64 j = t * o.arms; j < (t + 1) * o.arms; j++) {
            means[j] = 0;
            for (i64 i = 0; i < o.dim; i++)
                means[j] += pool[shown[j] * o.dim + i] * o.path.at[row * o.dim + i];
        }
    }
    // Features come into season one after another; contexts are then brought to norm 1.
    void drift(i64 number) {
        const i64 d = o.dim;
        for (i64 t = 0; t < LOT; t++) {
            double now = (double)(number * LOT + t), place = now / o.period - __builtin_floor(now / o.period);
            for (i64 i = 0; i < d; i += 4) {  // weights, in the place of the lots
                four u;
                for (int k = 0; k < 4; k++) {
                    double turned = place - (double)(i + k) / (double)d;
                    u[k] = turned - __builtin_floor(turned);
                }
                four sine, cosine;
                circle(u, sine, cosine);
                for (int k = 0; k < 4 && i + k < d; k++)
                    lots[i + k] = o.faded + (1 - o.faded) * (1 + cosine[k]) / 2;
            }
            for (i64 j = 0; j < o.arms; j++) {
                i64 at = t * o.arms + j;
                const double* given = pool + shown[at] * d;
                double *own = contexts + at * d, square = 0, mean = 0;
                for (i64 i = 0; i < d; i++) {
                    own[i] = given[i] * lots[i];
                    square += own[i] * own[i];
                }
                double length = root(square);
                for (i64 i = 0; i < d; i++) {
                    own[i] /= length;
                    mean += own[i] * theta[i];
                }
                shown[at] = at;
                means[at] = mean;
            }
        }
    }
};
}  // namespace dpb::DPB_ARCH
