// What Python sees: dpbandit._core. Compiled for the oldest processor; picks the core when imported.
// Threads and errors are here alone. Names become kinds here, and a name nobody knows is refused.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cpu.hpp"
#include "interface.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using std::string;

namespace {
#if defined(__x86_64__)
const dpb::Arch* const cores[] = {&dpb::arch_v2, &dpb::arch_v3, &dpb::arch_v4};
#else
const dpb::Arch* const cores[] = {&dpb::arch_generic};
#endif
static_assert(sizeof cores / sizeof *cores == dpb::cpu::count, "a core for each name");
const dpb::Arch* core_in_use = nullptr;

// ------------------------------------------------------------------------------------------ names

const std::map<string, dpb::NoiseKind> NOISES = {
    {"none", dpb::NoiseKind::none},        {"gaussian", dpb::NoiseKind::gaussian},
    {"laplace", dpb::NoiseKind::laplace},  {"laplace-l2", dpb::NoiseKind::knorm},
    {"wishart", dpb::NoiseKind::wishart},
};
const std::map<string, dpb::PolicyKind> POLICIES = {
    {"uniform", dpb::PolicyKind::uniform},
    {"ucb", dpb::PolicyKind::ucb},
    {"centred-ucb", dpb::PolicyKind::centred_ucb},
    {"thompson", dpb::PolicyKind::thompson},
    {"index", dpb::PolicyKind::index},
};
const std::map<string, dpb::LearnerKind> LEARNERS = {
    {"none", dpb::LearnerKind::none},     {"ridge", dpb::LearnerKind::ridge},
    {"filter", dpb::LearnerKind::filter}, {"joint", dpb::LearnerKind::joint},
    {"arms", dpb::LearnerKind::arms},
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
const std::map<string, dpb::Lemma> FORMS = {
    {"figure", dpb::Lemma::figure}, {"simplified", dpb::Lemma::simplified}, {"full", dpb::Lemma::full}};
const std::map<string, dpb::WorldKind> WORLDS = {
    {"synthetic", dpb::WorldKind::synthetic},
    {"bernoulli", dpb::WorldKind::bernoulli},
    {"degenerate", dpb::WorldKind::degenerate},
    {"drifting", dpb::WorldKind::drifting},
};
template <class T> T kind(const std::map<string, T>& known, const string& name, const char* what) {
    auto found = known.find(name);
    if (found != known.end()) return found->second;
    string names;
    for (auto& one : known) names += (names.empty() ? "" : ", ") + one.first;
    throw nb::value_error((string("the core knows no ") + what + " '" + name + "' (" + names + ")").c_str());
}

// ----------------------------------------------------------------------------------------- arrays

// A C-contiguous array, seen in place; `format` is one of d, q and Q (64-bit words), i, B (bytes), ? (flags).
struct View {
    Py_buffer b;
    bool good;
    View(nb::handle h, int ndim, char format = 'd') {
        good = PyObject_GetBuffer(h.ptr(), &b, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0;
        if (!good) {
            PyErr_Clear();
            return;
        }
        char own = b.format && b.format[0] && !b.format[1] ? b.format[0] : 0;
        if (own == 'l' && b.itemsize == 8) own = 'q';
        if (own == 'L' && b.itemsize == 8) own = 'Q';
        bool aligned = (uintptr_t)b.buf % (size_t)b.itemsize == 0;
        if (b.ndim != ndim || own != format || !aligned) {
            PyBuffer_Release(&b);
            good = false;
        }
    }
    ~View() {
        if (good) PyBuffer_Release(&b);
    }
    View(const View&) = delete;
    template <class T = double> const T* data() const { return (const T*)b.buf; }
    template <class T = double> T* writable() const {
        if (b.readonly) throw nb::value_error("an array that is written to is read-only");
        return (T*)b.buf;
    }
    int64_t rows() const { return b.shape[0]; }
    int64_t columns() const { return b.shape[1]; }
};
void require(bool holds, const char* words) {
    if (!holds) throw nb::value_error(words);
}
using Array = nb::ndarray<nb::numpy, double>;
Array array(std::vector<double>&& numbers, std::vector<size_t> shape) {
    auto* own = new std::vector<double>(std::move(numbers));
    nb::capsule owner(own, [](void* p) noexcept { delete (std::vector<double>*)p; });
    return Array(own->data(), shape.size(), shape.data(), owner);
}
Array copied(const double* from, int64_t rows, int64_t columns, int64_t stride) {
    std::vector<double> numbers((size_t)(rows * columns));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) numbers[(size_t)(i * columns + k)] = from[i * stride + k];
    return array(std::move(numbers), {(size_t)rows, (size_t)columns});
}
Array copied(const double* from, int64_t count) {
    return array(std::vector<double>(from, from + count), {(size_t)count});
}
nb::object whole_number(__int128 value) {  // by way of two halves
    bool negative = value < 0;
    unsigned __int128 size = negative ? -(unsigned __int128)value : (unsigned __int128)value;
    nb::object high = nb::int_((uint64_t)(size >> 64)), low = nb::int_((uint64_t)size);
    nb::object all = (high << nb::int_(64)) | low;
    return negative ? nb::object(nb::int_(0) - all) : all;
}
__int128 from_whole_number(nb::handle number) {
    nb::object value = nb::borrow(number), zero = nb::int_(0);
    bool negative = nb::cast<bool>(value.attr("__lt__")(zero));
    if (negative) value = zero - value;
    nb::object mask = nb::int_(UINT64_MAX);
    auto low = nb::cast<uint64_t>(value & mask);
    auto high = nb::cast<uint64_t>((value >> nb::int_(64)) & mask);
    require(nb::cast<bool>((value >> nb::int_(126)).attr("__eq__")(zero)), "a whole number below 2^126");
    auto size = (__int128)((unsigned __int128)high << 64 | low);
    return negative ? -size : size;
}

// ------------------------------------------------------------------------------------------- spec

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
    s.dim = r.integer("dim");
    s.horizon = r.integer("horizon");
    s.max_norm = r.real("max_norm");
    s.l1_limit = r.real("l1_limit");
    s.low = r.real("low");
    s.high = r.real("high");
    s.alpha = r.real("alpha");
    s.context_noise = r.real("context_noise");
    s.one_hot = r.flag("one_hot");
    s.clips = r.flag("clips");
    s.ties_key = r.key("ties_key");
    s.contexts_key = r.key("contexts_key");
    require(s.dim >= 1 && s.dim <= 100'000, "dim must lie between 1 and 100,000");
    require(s.max_norm > 0 && s.low < s.high && s.horizon >= 0, "max_norm, low and high, or horizon");
    require((s.policy == dpb::PolicyKind::index) == (s.learner == dpb::LearnerKind::arms) ||
                s.policy == dpb::PolicyKind::uniform,
            "the policy 'index' goes with the learner 'arms' alone");
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
            require(s.ridge > 0, "ridge must be above 0");
            break;
        case dpb::LearnerKind::filter:
            s.scale = r.real("scale");
            s.window = r.real("window");
            s.knee = r.real("knee");
            s.ratio = r.real("ratio");
            s.first = r.integer("first");
            s.reward_variance = r.real("reward_variance");
            s.empirical_bayes = r.flag("empirical_bayes");
            s.public_contexts = r.table("public_contexts");
            require(s.public_contexts.rows == 0 || s.public_contexts.columns == s.dim,
                    "public_contexts have dim columns");
            require(s.window > 0 && s.knee > 0 && s.ratio > 1 && s.first >= 1, "window, knee, ratio or first");
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
    }
    r.finish();
    return s;
}

// ------------------------------------------------------------------------------------------ engine

constexpr int NOT_AN_ARRAY = -1;

class World;

class Engine {
   public:
    explicit Engine(nb::dict given) : tables_(), spec_(read_spec(given, tables_)) { make(); }
    // A copy that goes on from the same state. Tables do not move when their owner does.
    Engine(const Engine& other) : tables_(other.tables_), spec_(other.spec_) {
        size_t at = 0;
        for (dpb::Table* t : {&spec_.shape, &spec_.unshape, &spec_.public_arms, &spec_.rates, &spec_.weights,
                              &spec_.public_contexts})
            for (at = 0; t->at && at < tables_.size(); at++)
                if (other.tables_[at].data() == t->at) {
                    t->at = tables_[at].data();
                    break;
                }
        make();
        std::vector<char> kept(core_->size());
        other.core_->save(kept.data());
        core_->load(kept.data());
    }
    Engine& operator=(const Engine&) = delete;
    ~Engine() { core_->destroy(); }

    int select(nb::handle contexts, double alpha) {
        View v(contexts, 2);
        if (!v.good) return NOT_AN_ARRAY;
        return core_->select(v.data(), v.rows(), v.columns(), alpha == alpha ? alpha : spec_.alpha);
    }
    nb::object rank(nb::handle contexts, int64_t k, double alpha) {
        View v(contexts, 2);
        if (!v.good) return nb::int_(NOT_AN_ARRAY);
        require(k >= 1 && k <= v.rows(), "k must be between 1 and the number of arms");
        std::vector<int64_t> found((size_t)k);
        int code = core_->rank(v.data(), v.rows(), v.columns(), alpha == alpha ? alpha : spec_.alpha, k,
                               found.data());
        if (code) return nb::int_(code);
        nb::list out;
        for (int64_t arm : found) out.append(arm);
        return out;
    }
    int check(nb::handle contexts) {
        View v(contexts, 2);
        return v.good ? core_->check(v.data(), v.rows(), v.columns()) : NOT_AN_ARRAY;
    }
    int admit(nb::handle x, double reward) {
        View v(x, 1);
        return v.good ? core_->admit(v.data(), v.rows(), reward) : NOT_AN_ARRAY;
    }
    int learn(nb::handle x, nb::handle reward) {
        View v(x, 1);
        if (!v.good || !PyFloat_Check(reward.ptr())) return NOT_AN_ARRAY;
        return core_->learn(v.data(), v.rows(), PyFloat_AsDouble(reward.ptr()));
    }
    nb::tuple learn_many(nb::handle xs, nb::handle rs) {
        View v(xs, 2), r(rs, 1);
        int64_t done = 0;
        int code = NOT_AN_ARRAY;
        if (v.good && r.good && v.rows() == r.rows()) {
            code = v.columns() == spec_.dim ? core_->learn_many(v.data(), r.data(), r.rows(), &done) : -2;
        }
        return nb::make_tuple(done, code);
    }
    const double* context(const View& v) const {
        require(v.good && v.rows() == spec_.dim, "a context is a C-contiguous float64 array of dim numbers");
        return v.data();
    }
    double prepare(nb::handle x, double reward, bool in_public_set) {
        require(!core_->waits(), "a release is pending: commit it first");
        View v(x, 1);
        return core_->prepare(context(v), reward, in_public_set);
    }
    Array pending() const { return copied(core_->pending(), core_->numbers()); }
    nb::object pending_whole() {
        const __int128* numbers = core_->pending_whole();
        if (!numbers) return nb::none();
        nb::list out;
        for (int64_t i = 0; i < core_->numbers(); i++) out.append(whole_number(numbers[i]));
        return out;
    }
    void commit(nb::handle noisy) {
        View v(noisy, 1);
        require(core_->waits(), "no release is pending");
        require(v.good && v.rows() == core_->numbers(), "commit takes as many numbers as are pending");
        core_->commit(v.data());
    }
    nb::list starts() {
        int64_t levels[dpb::MOST_LEVELS];
        nb::list out;
        for (int64_t i = 0, many = core_->starts(levels); i < many; i++) out.append(levels[i]);
        return out;
    }
    void begin(int64_t level, nb::list noise) {
        require((int64_t)noise.size() == core_->numbers() && level >= 0 && level < dpb::MOST_LEVELS,
                "begin takes a level and as many whole numbers as a release has");
        std::vector<__int128> numbers;
        for (nb::handle one : noise) numbers.push_back(from_whole_number(one));
        core_->begin(level, numbers.data());
    }
    double simulate(nb::handle x, double reward, bool in_public_set, uint64_t noise_key, uint64_t start_key) {
        require(!core_->waits(), "a release is pending: commit it first");
        View v(x, 1);
        return core_->simulate(context(v), reward, in_public_set, dpb::Keys{noise_key, start_key});
    }
    Array perturb(nb::handle contexts, uint64_t index) {
        View v(contexts, 2);
        require(v.good && v.columns() == spec_.dim, "contexts have dim columns");
        std::vector<double> out((size_t)(v.rows() * v.columns()));
        core_->perturb(v.data(), v.rows(), index, out.data());
        return array(std::move(out), {(size_t)v.rows(), (size_t)v.columns()});
    }
    Array theta() const { return copied(core_->theta(), spec_.dim); }
    nb::dict model() {
        nb::dict out;
        out["theta"] = theta();
        size_t d = (size_t)spec_.dim;
        if (const double* m = core_->matrix()) {
            out["matrix"] = copied(m, spec_.dim, spec_.dim, core_->stride());
            return out;
        }
        // One-hot contexts see the diagonal alone: an arm's bonus, squared; none in random play.
        std::vector<double> diagonal(d * d);
        const double* bonuses = core_->bonuses(spec_.alpha);
        for (size_t i = 0; bonuses && i < d; i++) diagonal[i * d + i] = bonuses[i] * bonuses[i];
        out["matrix"] = array(std::move(diagonal), {d, d});
        return out;
    }
    static nb::dict fields(nb::object self) {
        auto& engine = nb::cast<Engine&>(self);
        dpb::Field found[dpb::MOST_FIELDS];
        nb::dict out;
        for (int64_t i = 0, many = engine.core_->fields(found); i < many; i++) {
            const dpb::Field& f = found[i];
            std::vector<size_t> shape = {(size_t)f.rows, (size_t)f.columns};
            std::vector<int64_t> strides = {f.stride, f.step};
            if (f.rows == 0) {
                shape.erase(shape.begin());
                strides.erase(strides.begin());
            }
            if (f.words)
                out[f.name] = nb::ndarray<nb::numpy, int64_t>(f.data, shape.size(), shape.data(), self,
                                                              strides.data());
            else
                out[f.name] = Array(f.data, shape.size(), shape.data(), self, strides.data());
        }
        return out;
    }
    // Go on from these: all of this engine's fields, no other, each of its own shape and type.
    static void load_fields(nb::object self, nb::dict given) {
        nb::dict own = fields(self);
        string wrong;
        for (auto [name, value] : given)
            if (!own.contains(name)) wrong = nb::cast<string>(name) + " is not a field of this engine";
        for (auto [name, value] : own) {
            if (!given.contains(name)) wrong = "the field " + nb::cast<string>(name) + " is missing";
            if (!wrong.empty()) break;
            nb::object from = given[name];
            if (!from.attr("shape").equal(value.attr("shape")) || !from.attr("dtype").equal(value.attr("dtype")))
                wrong = "the field " + nb::cast<string>(name) + " has another shape or type";
        }
        if (!wrong.empty()) throw nb::value_error(wrong.c_str());
        for (auto [name, value] : own) value[nb::ellipsis()] = given[name];
        nb::cast<Engine&>(self).core_->loaded();
    }
    int64_t number(const char* name) const {
        dpb::Field found[dpb::MOST_FIELDS];
        int64_t many = core_->fields(found);
        for (int64_t i = 0; i < many && i < 4; i++)
            if (string(found[i].name) == name) return *(const int64_t*)found[i].data;
        throw nb::attribute_error(name);
    }
    bool start(nb::handle noisy, double scale) {
        View v(noisy, 1);
        require(v.good && v.rows() == core_->numbers(), "start takes as many numbers as a release has");
        return core_->start(v.data(), scale);
    }
    bool conclude() { return core_->conclude(); }
    nb::bytes snapshot() const {
        std::vector<char> kept(core_->size());
        core_->save(kept.data());
        return nb::bytes(kept.data(), kept.size());
    }
    void restore(nb::bytes kept) {
        require(kept.size() == core_->size(), "a snapshot of another engine");
        core_->load((const char*)kept.data());
    }
    void reset() { core_->reset(); }
    Engine* copy() const { return new Engine(*this); }

    // What the arguments of the two `play`s have in common.
    struct Played {
        View alphas, record, totals, truth_view;
        std::vector<double> out;
        dpb::Record record_of;
        Played(nb::handle alphas_, nb::handle record_, nb::handle totals_, nb::object truth, int64_t rounds,
               int64_t dim)
            : alphas(alphas_, 1), record(record_, 1, 'q'), totals(totals_, 1), truth_view(truth, 1) {
            require(alphas.good && (alphas.rows() == 1 || alphas.rows() == rounds), "alphas: one, or one a round");
            require(record.good && totals.good && totals.rows() == 2 && !totals.b.readonly, "record or totals");
            require(truth.is_none() || (truth_view.good && truth_view.rows() == dim), "truth has dim numbers");
            out.resize((size_t)record.rows() * 3);
            record_of = dpb::Record{alphas.data(),
                                    alphas.rows(),
                                    truth.is_none() ? nullptr : truth_view.data(),
                                    record.data<int64_t>(),
                                    record.rows(),
                                    (double*)totals.b.buf,
                                    out.data(),
                                    nullptr};
        }
    };
    nb::object play(nb::handle pool_, nb::handle shown_, nb::handle rewards_, nb::handle means_, nb::handle alphas,
                    uint64_t noise_key, uint64_t start_key, nb::object known, nb::object truth, nb::handle record,
                    nb::handle totals, nb::object arms) {
        View pool(pool_, 2), shown(shown_, 2, 'q'), rewards(rewards_, 2), means(means_, 2);
        View set(known, 1, '?'), chosen(arms, 1, 'q');
        require(pool.good && shown.good && rewards.good && means.good, "pool, shown, rewards or means");
        require(pool.columns() == spec_.dim, "the pool has dim columns");
        require(rewards.rows() == shown.rows() && rewards.columns() == shown.columns() &&
                    means.rows() == shown.rows() && means.columns() == shown.columns() && shown.columns() >= 1,
                "shown, rewards and means have one shape");
        require(known.is_none() || (set.good && set.rows() == pool.rows()), "in_public_set: one a row of the pool");
        require(arms.is_none() || (chosen.good && chosen.rows() == shown.rows()), "arms: one a round");
        const int64_t* rows = shown.data<int64_t>();
        for (int64_t i = 0; i < shown.rows() * shown.columns(); i++)
            require(rows[i] >= 0 && rows[i] < pool.rows(), "shown names a row that the pool does not have");
        Played played(alphas, record, totals, truth, shown.rows(), spec_.dim);
        played.record_of.arms = arms.is_none() ? nullptr : (int64_t*)chosen.b.buf;
        dpb::Rounds rounds{pool.data(),    rows,    means.data(),
                           rewards.data(), nullptr, known.is_none() ? nullptr : set.data<bool>(),
                           shown.rows(),   shown.columns()};
        int code;
        {
            nb::gil_scoped_release unlocked;
            code = core_->play(rounds, played.record_of, dpb::Keys{noise_key, start_key});
        }
        if (code) return nb::int_(code);
        size_t many = (size_t)played.record_of.count;
        return nb::cast(array(std::move(played.out), {many, 3}));
    }
    nb::object play_world(World& world, int64_t start, int64_t count, nb::handle alphas, uint64_t noise_key,
                          uint64_t start_key, nb::object truth, nb::handle record, nb::handle totals);

    struct Streamed {
        View xs, rs, set;
        dpb::Stream stream;
        Streamed(nb::handle xs_, nb::handle rs_, nb::object known, int64_t dim)
            : xs(xs_, 2), rs(rs_, 1), set(known, 1, '?') {
            require(xs.good && rs.good && xs.rows() == rs.rows() && xs.columns() == dim, "a stream's arrays");
            require(known.is_none() || (set.good && set.rows() == rs.rows()), "in_public_set: one a round");
            stream = dpb::Stream{xs.data(), rs.data(), known.is_none() ? nullptr : set.data<bool>(), rs.rows()};
        }
    };
    nb::tuple trace(nb::handle xs, nb::handle rs, nb::object known, uint64_t noise_key, uint64_t start_key,
                    nb::object noisy) {
        Streamed s(xs, rs, known, spec_.dim);
        size_t width = (size_t)core_->shown_numbers(), many = (size_t)s.stream.count;
        View forced(noisy, 2);
        require(noisy.is_none() ||
                    (forced.good && forced.rows() == s.stream.count && forced.columns() == (int64_t)width),
                "noisy has a row for each round");
        std::vector<double> shown(many * width), values(many * width), scales(many);
        if (!noisy.is_none()) shown.assign(forced.data(), forced.data() + many * width);
        {
            nb::gil_scoped_release unlocked;
            core_->trace(s.stream, dpb::Keys{noise_key, start_key}, !noisy.is_none(), shown.data(), values.data(),
                         scales.data());
        }
        return nb::make_tuple(array(std::move(shown), {many, width}), array(std::move(values), {many, width}),
                              array(std::move(scales), {many}));
    }
    Array scores(nb::handle xs, nb::handle rs, nb::handle other_xs, nb::handle other_rs, nb::object known,
                 uint64_t key, int64_t first, int64_t count) {
        Streamed own(xs, rs, known, spec_.dim), other(other_xs, other_rs, known, spec_.dim);
        require(own.stream.count == other.stream.count, "streams of one length");
        Engine twin(*this);
        std::vector<double> out((size_t)count);
        {
            nb::gil_scoped_release unlocked;
            core_->scores(own.stream, other.stream, twin.core_, key, first, count, out.data());
        }
        return array(std::move(out), {(size_t)count});
    }
    const dpb::Spec& spec() const { return spec_; }

   private:
    void make() {
        core_ = core_in_use->make(spec_);
        if (!core_) throw nb::value_error("the core has no such combination of site and release");
    }
    std::vector<std::vector<double>> tables_;
    dpb::Spec spec_;
    dpb::Core* core_;
};

// ------------------------------------------------------------------------------------------ worlds

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
        s.rare = r.real("rare");
        s.rare_arms = r.integer("rare_arms");
        s.period = r.real("period");
        s.faded = r.real("faded");
        r.finish();
        require(s.dim >= 1 && s.arms >= 1 && s.arms <= s.pool_size && s.period > 0, "dim, arms or period");
        require(s.kind != dpb::WorldKind::degenerate ||
                    (s.rare_arms >= s.arms && s.pool_size - s.rare_arms >= s.arms),
                "enough arms of both kinds");
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

// ------------------------------------------------------------------------------------------ logs

void hash_names(nb::handle text_, nb::handle offsets_, nb::handle out_) {
    View text(text_, 1, 'B'), offsets(offsets_, 1, 'q'), out(out_, 1, 'Q');
    require(text.good && offsets.good && out.good && offsets.rows() == out.rows() + 1, "text, offsets or out");
    const int64_t* at = offsets.data<int64_t>();
    for (int64_t i = 0; i < out.rows(); i++)
        require(at[i] >= 0 && at[i] <= at[i + 1] && at[i + 1] <= text.rows(), "offsets lie within the text");
    uint64_t* hashes = out.writable<uint64_t>();
    nb::gil_scoped_release unlocked;
    core_in_use->hash_names(text.data<unsigned char>(), at, out.rows(), hashes);
}
struct TallyViews {
    View keys, counts;
    dpb::Tally table;
    TallyViews(nb::handle keys_, nb::handle counts_) : keys(keys_, 1, 'Q'), counts(counts_, 1, 'i') {
        require(keys.good && counts.good && counts.rows() == keys.rows() + 1 && keys.rows() >= 1 &&
                    (keys.rows() & (keys.rows() - 1)) == 0,
                "keys: a power of two of them; counts: one more");
        table = dpb::Tally{keys.writable<uint64_t>(), counts.writable<int32_t>(), keys.rows()};
    }
};
int64_t tally(nb::handle names_, nb::handle status_, int64_t cap, int64_t over, nb::handle keys, nb::handle counts,
              int64_t start) {
    View names(names_, 1, 'Q'), status(status_, 1, 'B');
    require(names.good && status.good && names.rows() == status.rows(), "names and status have one length");
    require(start >= 0 && start <= names.rows() && cap >= 1, "start or cap");
    require(over > 0 && over < 256, "over is a status");
    const uint64_t* all = names.data<uint64_t>();
    for (int64_t i = 0; i < names.rows(); i++) require(all[i] != 0, "no name has the hash 0");
    TallyViews into(keys, counts);
    unsigned char* marks = status.writable<unsigned char>();
    nb::gil_scoped_release unlocked;
    return core_in_use->tally(into.table, cap, (unsigned char)over, all, marks, start, names.rows());
}
void move_tally(nb::handle keys, nb::handle counts, nb::handle new_keys, nb::handle new_counts) {
    TallyViews from(keys, counts), to(new_keys, new_counts);
    require(to.table.places > from.table.places, "the new table is larger");
    nb::gil_scoped_release unlocked;
    core_in_use->move_tally(from.table, to.table);
}
dpb::LogRecipe read_recipe(nb::dict given, std::vector<std::vector<double>>& tables) {
    Reader r(given, tables);
    dpb::LogRecipe o{};
    o.dim = r.integer("dim");
    o.power = r.integer("power");
    o.max_norm = r.real("max_norm");
    o.tolerance = r.real("tolerance");
    o.l1_limit = r.real("l1_limit");
    o.low = r.real("low");
    o.high = r.real("high");
    o.middle = r.real("middle");
    o.width = r.real("width");
    o.size = r.real("size");
    o.floor = r.real("floor");
    o.clips = r.flag("clips");
    o.constant = r.flag("constant");
    o.triangular = r.flag("triangular");
    o.whole = r.flag("whole");
    o.whitener = r.table("whitener");
    r.finish();
    int64_t k = o.dim + o.constant;
    require(o.dim >= 1 && o.max_norm > 0 && o.size > 0 && o.low < o.high && o.width > 0, "dim, norms or ranges");
    require(o.whitener.rows == 0 || (o.whitener.rows == k && o.whitener.columns == k), "the whitener is k × k");
    require(o.power == -1 || o.power == 0 || o.power == 2, "power is -1, 0 or 2");
    // Items of any size would not fit the grid.
    require(!o.whole || (o.clips && o.middle == 0.5 * (o.low + o.high) && o.width == o.high - o.low),
            "private items are of clipped, centred and scaled rewards");
    require(o.whole || o.whitener.rows == 0, "rewards in the clear have no whitener");
    return o;
}
struct LogRows {
    View xs, rs, status;
    LogRows(const dpb::LogRecipe& o, nb::handle xs_, nb::handle rs_, nb::handle status_)
        : xs(xs_, 2), rs(rs_, 1), status(status_, 1, 'B') {
        require(xs.good && rs.good && status.good && xs.columns() == o.dim && rs.rows() == xs.rows() &&
                    status.rows() == xs.rows(),
                "contexts, rewards and statuses of as many rows");
    }
};
void inspect_rows(nb::dict recipe, nb::handle xs, nb::handle rs, nb::handle status) {
    std::vector<std::vector<double>> tables;
    dpb::LogRecipe o = read_recipe(recipe, tables);
    LogRows rows(o, xs, rs, status);
    unsigned char* marks = rows.status.writable<unsigned char>();
    nb::gil_scoped_release unlocked;
    core_in_use->inspect_rows(o, rows.xs.data(), rows.rs.data(), rows.rs.rows(), marks);
}
void absorb_rows(nb::dict recipe, nb::handle xs, nb::handle rs, nb::handle status, nb::dict sums) {
    std::vector<std::vector<double>> tables;
    dpb::LogRecipe o = read_recipe(recipe, tables);
    LogRows rows(o, xs, rs, status);
    const unsigned char* marks = rows.status.data<unsigned char>();
    for (int64_t i = 0; i < rows.status.rows(); i++) require(marks[i] <= dpb::ROW_OVER_CAP, "an unknown status");
    int64_t k = o.dim + o.constant, seconds = o.power >= 0 ? k * k : 0;
    std::vector<std::unique_ptr<View>> views;
    auto numbers = [&](const char* name, int ndim, int64_t count, char format) {
        require(sums.contains(name), (string("the sums lack ") + name).c_str());
        views.push_back(std::make_unique<View>(sums[name], ndim, format));
        const View& v = *views.back();
        require(v.good && v.b.len == count * 8, (string("the sums' ") + name + " has another shape").c_str());
        return v.writable<void>();
    };
    auto reals = [&](const char* name, int ndim, int64_t count) { return (double*)numbers(name, ndim, count, 'd'); };
    auto words = [&](const char* name, int64_t count) { return (int64_t*)numbers(name, 1, count, 'q'); };
    dpb::LogSums into{};
    into.gram = reals("gram", 2, k * k);
    into.gram_low = reals("gram_low", 2, k * k);
    into.second = reals("second", 2, seconds);
    into.second_low = reals("second_low", 2, seconds);
    into.first = reals("first", 1, k);
    into.first_low = reals("first_low", 1, k);
    into.moments = reals("moments", 1, k);
    into.moments_low = reals("moments_low", 1, k);
    into.items = words("items", 2 * k);
    into.counts = words("counts", dpb::ROW_COUNTS);
    into.longest = reals("longest", 1, 2);
    nb::gil_scoped_release unlocked;
    core_in_use->absorb_rows(o, rows.xs.data(), rows.rs.data(), marks, rows.rs.rows(), into);
}

Array simulated_noise(const string& name, uint64_t key, uint64_t index, double scale, nb::handle value) {
    View v(value, 1);
    require(v.good, "value must be a C-contiguous float64 vector");
    std::vector<double> from(v.data(), v.data() + v.rows()), out((size_t)v.rows() + 16);
    from.resize(from.size() + 16);
    core_in_use->draw(kind(NOISES, name, "noise"), key, index, v.rows(), scale, from.data(), out.data());
    out.resize((size_t)v.rows());
    return array(std::move(out), {(size_t)v.rows()});
}
Array uniforms(uint64_t key, uint64_t stream, int64_t count) {
    require(count >= 0, "count must be at least 0");
    std::vector<double> out((size_t)count + 8);
    core_in_use->uniforms(key, stream, count, out.data());
    out.resize((size_t)count);
    return array(std::move(out), {(size_t)count});
}
double log_ratio(const string& name, nb::handle y_, nb::handle zero_, nb::handle one_, double scale) {
    View y(y_, 1), zero(zero_, 1), one(one_, 1);
    require(y.good && zero.good && one.good && y.rows() == zero.rows() && y.rows() == one.rows(),
            "three float64 vectors of one length");
    return core_in_use->log_ratio(kind(NOISES, name, "noise"), y.rows(), y.data(), zero.data(), one.data(), scale);
}
// Log-likelihood ratios of runs of a mechanism that is known by its releases alone: `value` with noise of
// these scales, where the two streams have `zero` and `one`.
Array release_scores(const string& name, nb::handle value_, nb::handle zero_, nb::handle one_, nb::handle scales_,
                     uint64_t key, int64_t first, int64_t count) {
    View value(value_, 2), zero(zero_, 2), one(one_, 2), scales(scales_, 1);
    require(value.good && zero.good && one.good && scales.good && first >= 0 && count >= 0, "a mechanism's arrays");
    int64_t rounds = value.rows(), width = value.columns();
    for (const View* v : {&zero, &one})
        require(v->rows() == rounds && v->columns() == width && scales.rows() == rounds, "arrays of one shape");
    dpb::NoiseKind noise = kind(NOISES, name, "noise");
    std::vector<double> clean((size_t)width + 16), noisy((size_t)width + 16), out((size_t)count);
    {
        nb::gil_scoped_release unlocked;
        for (int64_t run = 0; run < count; run++) {
            uint64_t own = core_in_use->lot(key, (uint64_t)(first + run), 0);
            for (int64_t t = 0; t < rounds; t++) {
                double scale = scales.data()[t];
                std::copy(value.data() + t * width, value.data() + (t + 1) * width, clean.begin());
                core_in_use->draw(noise, own, (uint64_t)t + 1, width, scale, clean.data(), noisy.data());
                out[(size_t)run] += core_in_use->log_ratio(noise, width, noisy.data(), zero.data() + t * width,
                                                           one.data() + t * width, scale);
            }
        }
    }
    return array(std::move(out), {(size_t)count});
}
}  // namespace

NB_MODULE(_core, module) {
    core_in_use = cores[dpb::cpu::choose()];
    const double nan = std::nan("");
    module.doc() = "The compiled core.";
    module.def("arch", [] { return core_in_use->name; },
               "The instruction set in use: 'v2', 'v3', 'v4' or 'generic'.");
    nb::class_<World>(module, "World")
        .def(nb::init<nb::dict>(), "spec"_a)
        .def("rounds", &World::rounds, "start"_a, "count"_a);
    nb::class_<Engine>(module, "Engine")
        .def(nb::init<nb::dict>(), "spec"_a)
        .def("select", &Engine::select, "contexts"_a.none(), "alpha"_a = nan)
        .def("rank", &Engine::rank, "contexts"_a.none(), "k"_a, "alpha"_a = nan)
        .def("check", &Engine::check, "contexts"_a.none())
        .def("admit", &Engine::admit, "x"_a.none(), "reward"_a)
        .def("learn", &Engine::learn, "x"_a.none(), "reward"_a.none())
        .def("learn_many", &Engine::learn_many, "xs"_a.none(), "rs"_a.none())
        .def("prepare", &Engine::prepare, "x"_a, "reward"_a, "in_public_set"_a = true)
        .def("pending", &Engine::pending)
        .def("pending_whole", &Engine::pending_whole)
        .def("commit", &Engine::commit, "noisy"_a)
        .def("starts", &Engine::starts)
        .def("begin", &Engine::begin, "level"_a, "whole"_a)
        .def("simulate", &Engine::simulate, "x"_a, "reward"_a, "in_public_set"_a, "noise_key"_a, "start_key"_a)
        .def("perturb", &Engine::perturb, "contexts"_a, "index"_a)
        .def("theta", &Engine::theta)
        .def("model", &Engine::model)
        .def("fields", &Engine::fields)
        .def("load_fields", &Engine::load_fields, "fields"_a)
        .def("start", &Engine::start, "noisy"_a, "scale"_a)
        .def("conclude", &Engine::conclude)
        .def("snapshot", &Engine::snapshot)
        .def("restore", &Engine::restore, "snapshot"_a)
        .def("reset", &Engine::reset)
        .def("copy", &Engine::copy, nb::rv_policy::take_ownership)
        .def("play", &Engine::play, "pool"_a, "shown"_a, "rewards"_a, "means"_a, nb::kw_only(), "alphas"_a,
             "noise_key"_a, "start_key"_a, "in_public_set"_a = nb::none(), "truth"_a = nb::none(), "record"_a,
             "totals"_a, "arms"_a = nb::none())
        .def("play_world", &Engine::play_world, "world"_a, "start"_a, "count"_a, nb::kw_only(), "alphas"_a,
             "noise_key"_a, "start_key"_a, "truth"_a = nb::none(), "record"_a, "totals"_a)
        .def("trace", &Engine::trace, "xs"_a, "rs"_a, "in_public_set"_a = nb::none(), nb::kw_only(), "noise_key"_a,
             "start_key"_a, "noisy"_a = nb::none())
        .def("scores", &Engine::scores, "xs"_a, "rs"_a, "other_xs"_a, "other_rs"_a, "in_public_set"_a = nb::none(),
             nb::kw_only(), "key"_a, "first"_a, "count"_a)
        .def_prop_ro("rounds", [](const Engine& e) { return e.number("rounds"); })
        .def_prop_ro("decisions", [](const Engine& e) { return e.number("decisions"); })
        .def_prop_ro("clipped", [](const Engine& e) { return e.number("clipped"); })
        .def_prop_ro("outside", [](const Engine& e) { return e.number("outside") != 0; });
    module.def("noise", &simulated_noise, "name"_a, "key"_a, "index"_a, "scale"_a, "value"_a,
               "A value with simulated noise number `index`: never for anyone outside a simulation.");
    module.def("uniforms", &uniforms, "key"_a, "stream"_a, "count"_a);
    module.def("lot", [](uint64_t key, uint64_t stream, uint64_t index) { return core_in_use->lot(key, stream, index); },
               "key"_a, "stream"_a, "index"_a);
    module.def("hash_names", &hash_names, "text"_a, "offsets"_a, "out"_a);
    module.def("tally", &tally, "names"_a, "status"_a, "cap"_a, "over"_a, "keys"_a, "counts"_a, "start"_a);
    module.def("move_tally", &move_tally, "keys"_a, "counts"_a, "new_keys"_a, "new_counts"_a);
    module.def("inspect_rows", &inspect_rows, "recipe"_a, "contexts"_a, "rewards"_a, "status"_a);
    module.def("absorb_rows", &absorb_rows, "recipe"_a, "contexts"_a, "rewards"_a, "status"_a, "sums"_a);
    module.def("log_ratio", &log_ratio, "name"_a, "y"_a, "zero"_a, "one"_a, "scale"_a,
               "log p(y | value one) − log p(y | value zero).");
    module.def("release_scores", &release_scores, "name"_a, "value"_a, "zero"_a, "one"_a, "scales"_a, "key"_a,
               "first"_a, "count"_a, "Scores of whole runs, for mechanisms known by their releases alone.");
}
