// Names become kinds here, and a name, a key or a type that nobody knows is refused.
#pragma once
#include "arrays.hpp"

namespace {
const std::map<string, dpb::NoiseKind> NOISES = {
    {"none", dpb::NoiseKind::none},        {"gaussian", dpb::NoiseKind::gaussian},
    {"laplace", dpb::NoiseKind::laplace},  {"laplace-l2", dpb::NoiseKind::knorm},
    {"wishart", dpb::NoiseKind::wishart},  {"response", dpb::NoiseKind::response},
};
const std::map<string, dpb::PolicyKind> POLICIES = {
    {"uniform", dpb::PolicyKind::uniform},
    {"ucb", dpb::PolicyKind::ucb},
    {"centred-ucb", dpb::PolicyKind::centred_ucb},
    {"thompson", dpb::PolicyKind::thompson},
    {"sampled", dpb::PolicyKind::sampled},
    {"index", dpb::PolicyKind::index},
};
const std::map<string, dpb::LearnerKind> LEARNERS = {
    {"none", dpb::LearnerKind::none},     {"ridge", dpb::LearnerKind::ridge},
    {"filter", dpb::LearnerKind::filter}, {"pair", dpb::LearnerKind::pair},
    {"joint", dpb::LearnerKind::joint},   {"arms", dpb::LearnerKind::arms},
    {"batches", dpb::LearnerKind::batches},
};
const std::map<string, dpb::Site> SITES = {
    {"nothing", dpb::Site::nothing}, {"reward", dpb::Site::reward},       {"moments", dpb::Site::moments},
    {"own", dpb::Site::own},         {"increment", dpb::Site::increment},
};
const std::map<string, dpb::ReleaseKind> RELEASES = {
    {"once", dpb::ReleaseKind::once},         {"tree", dpb::ReleaseKind::tree},
    {"honaker", dpb::ReleaseKind::honaker},   {"pan-private", dpb::ReleaseKind::pan_private},
    {"toeplitz", dpb::ReleaseKind::toeplitz}, {"episodes", dpb::ReleaseKind::episodes},
};
const std::map<string, dpb::RewardKind> REWARDS = {
    {"numbers", dpb::RewardKind::numbers}, {"clicks", dpb::RewardKind::clicks}};
const std::map<string, dpb::Lemma> FORMS = {
    {"figure", dpb::Lemma::figure}, {"simplified", dpb::Lemma::simplified}, {"full", dpb::Lemma::full}};
const std::map<string, dpb::WorldKind> WORLDS = {
    {"synthetic", dpb::WorldKind::synthetic},
    {"bernoulli", dpb::WorldKind::bernoulli},
    {"degenerate", dpb::WorldKind::degenerate},
    {"drifting", dpb::WorldKind::drifting},
    {"clicks", dpb::WorldKind::clicks},
    {"moving", dpb::WorldKind::moving},
};
template <class T> T kind(const std::map<string, T>& known, const string& name, const char* what) {
    auto found = known.find(name);
    if (found != known.end()) return found->second;
    string names;
    for (auto& one : known) names += (names.empty() ? "" : ", ") + one.first;
    throw nb::value_error((string("the core knows no ") + what + " '" + name + "' (" + names + ")").c_str());
}


// Reads a dict to the last key: what is missing, unknown or of another type is refused by name.
class Reader {
   public:
    Reader(nb::dict from, std::vector<std::vector<double>>& tables) : from_(from), tables_(tables) {}
    template <class T> T get(const char* name) {
        nb::object value = take(name);
        T found{};
        if (!nb::try_cast<T>(value, found, true))
            throw nb::value_error((string("the spec's ") + name + " is of another type").c_str());
        return found;
    }
    double real(const char* name) { return get<double>(name); }
    int64_t integer(const char* name) { return get<int64_t>(name); }
    bool flag(const char* name) { return get<bool>(name); }
    uint64_t key(const char* name) { return get<uint64_t>(name); }
    template <class T> T named(const char* name, const std::map<string, T>& known) {
        return kind(known, get<string>(name), name);
    }
    dpb::Table table(const char* name, int ndim = 2) {
        View v(take(name), ndim);
        require(v.good, (string("the spec's ") + name + " must be a C-contiguous float64 array").c_str());
        int64_t rows = v.rows(), columns = ndim == 2 ? v.columns() : 1;
        tables_.emplace_back(v.data(), v.data() + rows * columns);
        return dpb::Table{tables_.back().data(), rows, columns};
    }
    void finish() {
        for (auto [name, value] : from_)
            if (!used_.count(nb::cast<string>(name)))
                throw nb::value_error(("the core knows no choice '" + nb::cast<string>(name) + "'").c_str());
    }

   private:
    nb::object take(const char* name) {
        if (!from_.contains(name)) throw nb::value_error((string("the spec lacks ") + name).c_str());
        used_.insert(name);
        return from_[name];
    }
    nb::dict from_;
    std::vector<std::vector<double>>& tables_;
    std::set<string> used_;
};
void read_tree(Reader& r, dpb::Spec& s) {
    s.levels = r.integer("levels");
    s.unknown_horizon = r.flag("unknown_horizon");
    s.sensitivity = r.real("sensitivity");
    dpb::Table given = r.table("multipliers", 1);
    require(given.rows == dpb::MOST_LEVELS + 1, "multipliers: one for each number of levels, from 0 to 62");
    for (int i = 0; i <= dpb::MOST_LEVELS; i++) s.multipliers[i] = given.at[i];
    require(s.levels >= 1 && s.levels <= dpb::MOST_LEVELS, "levels must lie between 1 and 62");
}
void read_anytime(Reader& r, dpb::Spec& s) {
    s.scale = r.real("scale");
    s.window = r.real("window");
    s.knee = r.real("knee");
    s.ratio = r.real("ratio");
    s.first = r.integer("first");
    s.reward_variance = r.real("reward_variance");
    require(s.window > 0 && s.knee > 0 && s.ratio > 1 && s.first >= 1, "window, knee, ratio or first");
}
bool fits(dpb::Site site, dpb::ReleaseKind release) {
    switch (site) {
        case dpb::Site::nothing:
        case dpb::Site::reward: return release == dpb::ReleaseKind::once;
        case dpb::Site::moments: return release != dpb::ReleaseKind::once;
        case dpb::Site::own:
        case dpb::Site::increment: return release == dpb::ReleaseKind::tree;
    }
    return false;
}
dpb::Spec read_spec(nb::dict given, std::vector<std::vector<double>>& tables) {
    Reader r(given, tables);
    dpb::Spec s{};
    s.learner = r.named("learner", LEARNERS);
    s.policy = r.named("policy", POLICIES);
    s.noise = r.named("noise", NOISES);
    require(s.noise != dpb::NoiseKind::response, "answers of one number have this noise, sums do not");
    s.dim = r.integer("dim");
    s.horizon = r.integer("horizon");
    s.max_norm = r.real("max_norm");
    s.l1_limit = r.real("l1_limit");
    s.low = r.real("low");
    s.high = r.real("high");
    s.alpha = r.real("alpha");
    s.context_noise = r.real("context_noise");
    s.holdout = r.real("holdout");
    require(s.holdout >= 0 && s.holdout <= 1, "holdout lies between 0 and 1");
    s.one_hot = r.flag("one_hot");
    s.clips = r.flag("clips");
    s.ties_key = r.key("ties_key");
    s.contexts_key = r.key("contexts_key");
    require(s.dim >= 1 && s.dim <= 100'000, "dim must lie between 1 and 100,000");
    require(s.l1_limit >= 0, "l1_limit must be at least 0, infinity for none");
    require(s.max_norm > 0 && s.low < s.high && s.horizon >= 0, "max_norm, low and high, or horizon");
    bool plain = s.learner == dpb::LearnerKind::arms || s.learner == dpb::LearnerKind::batches;
    require((s.policy == dpb::PolicyKind::index) == plain || s.policy == dpb::PolicyKind::uniform,
            "the policy 'index' goes with the learners 'arms' and 'batches' alone");
    require(s.learner != dpb::LearnerKind::none || s.policy == dpb::PolicyKind::uniform,
            "without a learner there is random play alone");
    switch (s.learner) {
        case dpb::LearnerKind::none: break;
        case dpb::LearnerKind::ridge:
            s.site = r.named("site", SITES);
            s.release = r.named("release", RELEASES);
            require(fits(s.site, s.release), "this site and this release do not go together");
            s.ridge = r.real("ridge");
            read_tree(r, s);
            s.growth = r.real("growth");
            s.floor = r.real("floor");
            s.shape = r.table("shape");
            s.unshape = r.table("unshape");
            require(s.shape.rows == 0 || (s.shape.rows == s.dim && s.shape.columns == s.dim &&
                                          s.unshape.rows == s.dim && s.unshape.columns == s.dim),
                    "shape and unshape are dim × dim, or empty");
            s.public_arms = r.table("public_arms");
            require(s.public_arms.rows == 0 || s.public_arms.columns == s.dim, "public_arms have dim columns");
            s.rates = r.table("rates", 1);
            s.weights = r.table("weights", 1);
            require(s.rates.rows == s.weights.rows, "as many rates as weights");
            s.form = r.named("form", FORMS);
            s.smallest_eigenvalue = r.real("smallest_eigenvalue");
            s.lemma_delta = r.real("lemma_delta");
            s.printed_index = r.flag("printed_index");
            s.forget = r.real("forget");
            require(s.ridge > 0, "ridge must be above 0");
            require(s.forget == 1 || (s.forget > 0 && s.forget < 1 && s.site == dpb::Site::nothing),
                    "forget lies above 0 and below 1, in the clear alone, or is 1");
            break;
        case dpb::LearnerKind::filter:
            read_anytime(r, s);
            s.rewards = r.named("rewards", REWARDS);
            s.empirical_bayes = r.flag("empirical_bayes");
            s.neglected = r.flag("neglected");
            s.find_scale = r.flag("find_scale");
            s.widest = r.real("widest");
            require(s.widest >= s.window, "widest is at least the window");
            s.life = r.real("life");
            s.memories = r.table("memories", 1);
            s.memory_alone = r.flag("memory_alone");
            s.local = r.integer("local");
            s.local_anyhow = r.flag("local_anyhow");
            s.local_scale = r.real("local_scale");
            s.local_variance = r.real("local_variance");
            require(s.local >= 0 && s.local_scale >= 1 && s.local_variance > 0, "local, its scale or its variance");
            require(s.life >= 1 && s.memories.rows <= 16, "life is at least 1, and memories are at most 16");
            require(!s.memory_alone || s.memories.rows == 1, "one memory is alone, and no other number of them");
            for (int64_t k = 0; k < s.memories.rows; k++)
                require(s.memories.at[k] > 0, "memories are rounds, above 0");
            s.public_contexts = r.table("public_contexts");
            require(s.public_contexts.rows == 0 || s.public_contexts.columns == s.dim,
                    "public_contexts have dim columns");
            break;
        case dpb::LearnerKind::pair:
            read_anytime(r, s);
            s.change = r.integer("change");
            s.versions = r.integer("versions");
            s.growth_of_change = r.real("growth");
            s.first_eta2 = r.real("first_eta2");
            s.later_eta2 = r.real("later_eta2");
            require(s.versions >= 1 && s.versions <= 64 && s.growth_of_change > 1 && s.first_eta2 > 0 && s.later_eta2 > 0,
                    "versions, growth, first_eta2 or later_eta2");
            s.reach = r.real("reach");
            s.persons = r.flag("persons");
            require(s.reach > 0, "reach must be above 0");
            s.known_second = r.table("known_second");
            require(s.known_second.rows == 0 ||
                        (s.known_second.rows == s.dim + 1 && s.known_second.columns == s.dim + 1),
                    "known_second is (dim + 1) × (dim + 1), or empty");
            break;
        case dpb::LearnerKind::joint:
            read_tree(r, s);
            s.size = r.real("size");
            s.reward_weight = r.real("reward_weight");
            s.reward_centre = r.real("reward_centre");
            s.ridge = r.real("ridge");
            s.shift = r.real("shift");
            s.log_rounds = r.real("log_rounds");
            break;
        case dpb::LearnerKind::arms:
            read_tree(r, s);
            s.published_term = r.flag("published_term");
            s.privacy_bonus = r.real("privacy_bonus");
            s.failure = r.real("failure");
            break;
        case dpb::LearnerKind::batches:
            s.scale = r.real("scale");
            s.first = r.integer("first");
            s.ratio = r.real("ratio");
            s.reward_variance = r.real("reward_variance");
            require(s.scale >= 0 && s.first >= 1 && s.ratio >= 1 && s.reward_variance >= 0,
                    "scale, first, ratio or reward_variance");
            break;
    }
    r.finish();
    return s;
}
}  // namespace
