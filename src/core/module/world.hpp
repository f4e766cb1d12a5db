// Simulated worlds, and how an engine plays them without Python in between.
#pragma once
#include "engine.hpp"

namespace {
constexpr int64_t MOST_ROWS = 1 << 20, MOST_PATH_ROUNDS = 1ll << 40;  // their product is a number
class World {
   public:
    explicit World(nb::dict given) {
        Reader r(given, tables_);
        dpb::WorldSpec s{};
        s.kind = r.named("world", WORLDS);
        s.dim = r.integer("dim");
        s.pool_size = r.integer("pool_size");
        s.arms = r.integer("arms");
        s.reward_noise = r.real("reward_noise");
        s.key = r.key("key");
        s.pool = r.table("pool");
        s.theta = r.table("theta", 1).at;
        require((int64_t)tables_.back().size() == s.dim, "theta has dim numbers");
        require(s.kind == dpb::WorldKind::bernoulli ? s.pool_size == s.dim && s.arms == s.dim
                                                    : s.pool.rows == s.pool_size && s.pool.columns == s.dim,
                "the pool is pool_size × dim");
        s.chances = r.table("chances", 1);
        require(s.kind != dpb::WorldKind::clicks || s.chances.rows == s.pool_size, "a chance for each of the pool");
        s.rare = r.real("rare");
        s.rare_arms = r.integer("rare_arms");
        s.period = r.real("period");
        s.faded = r.real("faded");
        s.path = r.table("path");
        s.path_rounds = r.integer("path_rounds");
        s.hidden = r.integer("hidden");
        r.finish();
        require(s.dim >= 1 && s.arms >= 1 && s.arms <= s.pool_size && s.period > 0, "dim, arms or period");
        require(s.kind != dpb::WorldKind::degenerate ||
                    (s.rare_arms >= s.arms && s.pool_size - s.rare_arms >= s.arms),
                "enough arms of both kinds");
        require(s.kind != dpb::WorldKind::moving ||
                    (s.path.rows >= 1 && s.path.rows <= MOST_ROWS && s.path.columns == s.dim &&
                     s.path_rounds >= 1 && s.path_rounds <= MOST_PATH_ROUNDS),
                "the path has rows of dim numbers, and rounds to walk it in");
        require(s.hidden >= 0 && s.arms <= s.pool_size - s.hidden, "enough arms that are not hidden");
        spec_ = s;
        world_ = core_in_use->make_world(s);
    }
    ~World() { world_->destroy(); }
    World(const World&) = delete;

    // The rounds of one lot that lie in [start, start + count).
    dpb::Rounds some(int64_t start, int64_t count) {
        int64_t lot = start / dpb::LOT, from = start % dpb::LOT;
        if (lot != drawn_) {
            all_ = &world_->lot(lot);
            drawn_ = lot;
        }
        dpb::Rounds part = *all_;
        part.count = std::min(count, dpb::LOT - from);
        part.shown += from * part.arms;
        part.means += from * part.arms;
        if (part.rewards) part.rewards += from * part.arms;
        part.noise += from;
        return part;
    }
    // Up to `count` rounds from `start` on, as arrays: contexts, shown, rewards, means.
    nb::tuple rounds(int64_t start, int64_t count) {
        require(start >= 0 && count >= 1, "start and count");
        dpb::Rounds r = some(start, count);
        size_t many = (size_t)r.count, arms = (size_t)r.arms, d = (size_t)spec_.dim;
        std::vector<double> contexts, means(r.means, r.means + many * arms), rewards(many * arms);
        auto* shown = new std::vector<int64_t>(r.shown, r.shown + many * arms);
        for (size_t t = 0; t < many; t++)
            for (size_t j = 0; j < arms; j++)
                rewards[t * arms + j] = r.rewards ? r.rewards[t * arms + j] : means[t * arms + j] + r.noise[t];
        size_t rows = (size_t)spec_.pool_size;
        if (spec_.kind == dpb::WorldKind::drifting) {  // contexts of these rounds alone
            rows = many * arms;
            size_t first = (size_t)r.shown[0];
            contexts.assign(r.pool + first * d, r.pool + (first + rows) * d);
            for (size_t i = 0; i < rows; i++) (*shown)[i] = (int64_t)i;
        } else {
            contexts.assign(r.pool, r.pool + rows * d);
        }
        nb::capsule owner(shown, [](void* p) noexcept { delete (std::vector<int64_t>*)p; });
        return nb::make_tuple(array(std::move(contexts), {rows, d}),
                              nb::ndarray<nb::numpy, int64_t>(shown->data(), {many, arms}, owner),
                              array(std::move(rewards), {many, arms}), array(std::move(means), {many, arms}));
    }
    const dpb::WorldSpec& spec() const { return spec_; }

   private:
    std::vector<std::vector<double>> tables_;
    dpb::WorldSpec spec_;
    dpb::World* world_ = nullptr;
    const dpb::Rounds* all_ = nullptr;
    int64_t drawn_ = -1;
};

nb::object Engine::play_world(World& world, int64_t start, int64_t count, nb::handle alphas, uint64_t noise_key,
                              uint64_t start_key, nb::object truth, nb::handle record, nb::handle totals) {
    require(world.spec().dim == spec_.dim, "the world has another dim");
    require(start >= 0 && count >= 1, "start and count");
    Played played(alphas, record, totals, truth, count, spec_.dim);
    int code = 0;
    {
        nb::gil_scoped_release unlocked;
        std::vector<int64_t> due;
        int64_t at = 0, many = played.record_of.count;
        for (int64_t done = 0; done < count && !code;) {
            dpb::Rounds part = world.some(start + done, count - done);
            bool fixed_pool = world.spec().kind != dpb::WorldKind::drifting;
            if (!fixed_pool || done == 0) {  // the gate: every context that may be offered
                int64_t first = fixed_pool ? 0 : part.shown[0];
                int64_t rows = fixed_pool ? world.spec().pool_size : part.count * part.arms;
                code = core_->check(part.pool + first * spec_.dim, rows, spec_.dim);
                if (code) break;
            }
            due.clear();
            int64_t from = at;
            for (; at < many && played.record_of.at[at] < done + part.count; at++)
                due.push_back(played.record_of.at[at] - done);
            dpb::Record piece = played.record_of;
            if (piece.alpha_count > 1) {
                piece.alphas += done;
                piece.alpha_count = part.count > 1 ? part.count : 1;
            }
            piece.at = due.data();
            piece.count = (int64_t)due.size();
            piece.out += 3 * from;
            code = core_->play(part, piece, dpb::Keys{noise_key, start_key});
            done += part.count;
        }
    }
    if (code) return nb::int_(code);
    size_t many = (size_t)played.record_of.count;
    return nb::cast(array(std::move(played.out), {many, 3}));
}
}  // namespace
