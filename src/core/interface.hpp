// What the module sees of a core, whichever instruction set it was compiled for: plain data and pure
// virtual functions. Nothing here has code.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace dpb {
enum class NoiseKind { none, gaussian, laplace, knorm, wishart, response };
enum class PolicyKind { uniform, ucb, centred_ucb, thompson, sampled, index };
enum class LearnerKind { none, ridge, filter, pair, joint, arms, batches };
enum class Site { nothing, reward, moments, own, increment };
enum class ReleaseKind { once, tree, honaker, pan_private, toeplitz, episodes };
enum class RewardKind { numbers, clicks };
enum class Lemma { figure, simplified, full };
constexpr int MOST_LEVELS = 62;
constexpr double NO_RELEASE = -1;

struct Table {  // rows × columns, row after row
    const double* at;
    int64_t rows, columns;
};

// The public choices of one bandit, fixed before the first round.
struct Spec {
    LearnerKind learner;
    PolicyKind policy;
    NoiseKind noise;
    int64_t dim, horizon;  // horizon 0: unknown
    double max_norm, l1_limit, low, high, alpha, context_noise, holdout;
    bool one_hot, clips;
    uint64_t ties_key, contexts_key;
    // ridge, joint, arms
    Site site;
    ReleaseKind release;
    double ridge, sensitivity, growth, floor;
    int64_t levels;
    bool unknown_horizon;
    double multipliers[MOST_LEVELS + 1];
    Table shape, unshape, public_arms, rates, weights;
    Lemma form;
    double smallest_eigenvalue, lemma_delta;
    bool printed_index;
    double forget;  // in the clear: what a round leaves of A − λ1 and b
    // filter, batches
    double scale, window, knee, ratio, reward_variance;
    int64_t first;
    RewardKind rewards;
    bool empirical_bayes, neglected, find_scale, memory_alone;
    double widest;  // half of the window whose edge all residuals reach
    double life;
    Table memories;
    int64_t local;  // of the first rounds: how many rewards are made noisy by themselves, at most
    bool local_anyhow;  // whatever slates look like
    double local_scale, local_variance;
    Table public_contexts;
    // pair: the filter's, and
    int64_t change, versions;
    double growth_of_change, first_eta2, later_eta2, reach;
    bool persons;  // a unit is all rounds of a person, whose residuals add up to at most `reach`
    Table known_second;  // second moments of (x/max_norm, 1) to begin with; empty: nothing is known
    // joint
    double size, reward_weight, reward_centre, shift, log_rounds;
    // arms
    bool published_term;
    double privacy_bonus, failure;
};

// Something that changes, by name: rows × columns of doubles or 64-bit words, rows `stride` apart.
struct Field {
    const char* name;
    void* data;
    bool words;
    int64_t rows, columns, stride, step;  // rows 0: a vector; step: between columns
};

// Consecutive rounds. Arm j of round t is pool[shown[t, j]]; playing it pays rewards[t, j], or
// means[t, j] + noise[t] where rewards is null.
struct Rounds {
    const double* pool;
    const int64_t* shown;
    const double *means, *rewards, *noise;
    const bool* in_public_set;  // for each row of the pool; null: all are
    int64_t count, arms;
};
struct Keys {
    uint64_t noise, start;
};
// What is recorded while playing: totals are carried from call to call.
struct Record {
    const double* alphas;
    int64_t alpha_count;  // 1: the same in every round
    const double* truth;  // null: unknown
    const int64_t* at;    // rounds, counted from this call's first, after which a row is written
    int64_t count;
    double* totals;  // reward, regret
    double* out;     // count × 3
    int64_t* arms;   // null, or the arm played in each round
};
struct Stream {  // played contexts with clipped rewards
    const double *xs, *rs;
    const bool* in_public_set;
    int64_t count;
};

struct Core {
    virtual void destroy() = 0;
    virtual void hold(bool) = 0;           // while held it neither chooses nor learns: BUSY
    virtual void become(const Core&) = 0;  // another one of the same spec, in every bit
    virtual int select(const double* contexts, int64_t arms, int64_t dim, double alpha) = 0;
    virtual int rank(const double* contexts, int64_t arms, int64_t dim, double alpha, int64_t k,
                     int64_t* out) = 0;
    virtual int admit(const double* x, int64_t dim, double reward) = 0;
    virtual int check(const double* contexts, int64_t arms, int64_t dim) = 0;
    // `counted` is what was counted of the person whose round it is, 0 of a stranger; `growth` by how
    // much that grew in the last round, where a bandit counts.
    virtual int learn(const double* x, int64_t dim, double reward, int64_t counted) = 0;
    virtual int64_t growth() const = 0;
    virtual int learn_many(const double* xs, const double* rs, int64_t count, int64_t* done) = 0;
    virtual double prepare(const double* x, double reward, bool in_public_set, int64_t counted) = 0;
    virtual void commit(const double* noisy) = 0;
    virtual double simulate(const double* x, double reward, bool in_public_set, Keys keys, int64_t counted) = 0;
    virtual int64_t starts(int64_t* levels) = 0;
    virtual void begin(int64_t level, const __int128* noise) = 0;
    virtual void begin_simulated(uint64_t key) = 0;
    // Contexts + N(0, σ²), brought back to max_norm where longer: what is scored with context_noise.
    virtual int64_t numbers() const = 0;  // in the release that is pending, or in the first one
    virtual int64_t shown_numbers() const = 0;  // in a row of a trace: θ itself where nothing is private
    virtual bool waits() const = 0;       // for a commit
    virtual const double* pending() const = 0;
    virtual const __int128* pending_whole() = 0;  // null where a release is not a whole number
    virtual const double* theta() const = 0;
    virtual const double* matrix() const = 0;  // of the bonus; null where the policy has none
    virtual const double* bonuses(double alpha) = 0;  // of each arm, where arms have no features
    virtual int64_t stride() const = 0;        // of its rows
    virtual int64_t fields(Field* out) = 0;
    virtual bool start(const double* noisy, double scale) = 0;  // from a log; false: not this learner
    virtual bool conclude() = 0;  // θ anew after a log was put in; false: nothing to do
    virtual void loaded() = 0;    // fields were written from outside: what follows from them
    virtual size_t size() const = 0;
    virtual void save(char* out) const = 0;
    virtual void load(const char* from) = 0;
    virtual void reset() = 0;
    virtual int play(const Rounds&, const Record&, Keys) = 0;  // a code
    virtual void trace(const Stream&, Keys, bool forced, double* noisy, double* values,
                       double* scales) = 0;
    virtual void scores(const Stream& own, const Stream& other, Core* twin, uint64_t key,
                        int64_t first, int64_t count, double* out) = 0;
    // For audits of two streams told the same noise.
    virtual double prepare_unchecked(const double* x, double reward, bool in_public_set) = 0;
    virtual void commit_unchecked(const double* noisy) = 0;

   protected:
    ~Core() = default;
};
constexpr int MOST_FIELDS = 64;

// A world whose rounds are drawn by the core: the same seed gives the same rounds in any cut.
enum class WorldKind { synthetic, bernoulli, degenerate, drifting, clicks, moving };
struct WorldSpec {
    WorldKind kind;
    int64_t dim, pool_size, arms;
    double reward_noise;
    uint64_t key;
    Table pool;             // drifting: items before their season; bernoulli: none
    const double* theta;    // bernoulli: the means
    Table chances;          // clicks: of each of the pool
    double rare;            // degenerate
    int64_t rare_arms;
    double period, faded;   // drifting
    Table path;             // moving: θ, a row after another, in equal parts of path_rounds
    int64_t path_rounds, hidden;  // the pool's last `hidden` are not offered in the first row
};
constexpr int64_t LOT = 1024;  // rounds that a world draws at a time
struct World {
    virtual void destroy() = 0;
    virtual const Rounds& lot(int64_t number) = 0;  // rounds number·LOT to (number + 1)·LOT
   protected:
    ~World() = default;
};

// What can be wrong with a row of a log (the first that applies), and what is counted besides.
enum RowStatus : unsigned char {
    ROW_GOOD, ROW_MISSING, ROW_LENGTH, ROW_NOT_FINITE, ROW_LONG, ROW_LONG_L1, ROW_NO_REWARD,
    ROW_NO_USER, ROW_OVER_CAP, ROW_CLIPPED, ROW_COUNTS
};
// The public choices of a pass over a log, fixed before it.
struct LogRecipe {
    int64_t dim, power;  // the second matrix is Σ c^power·z·zᵀ; −1: there is none
    double max_norm, tolerance, l1_limit, low, high, middle, width, size, floor;
    bool clips, constant, triangular, whole;  // z ends with a 1; P is lower triangular; items are private
    Table whitener;                           // P; no rows: c = 1
    double directions;  // above 0: contexts are private, and so is Σ of this times u·uᵀ, packed
};
struct LogSums {  // matrices are k × k, and only their lower halves are kept up
    double *gram, *gram_low, *second, *second_low, *first, *first_low, *moments, *moments_low;
    int64_t *items, *counts;  // items: two words each, the lower one first
    double* longest;          // of x/max_norm: L2, L1
};
// Rewards by user: a table of open addresses; counts[places] is how many places are taken.
struct Tally {
    uint64_t* keys;
    int32_t* counts;
    int64_t places;  // a power of two
};

// What `make` answers. No bandit although there is such a combination: it does not fit into memory.
struct Made {
    Core* core;
    bool known;
};
struct Arch {
    const char* name;
    Made (*make)(const Spec&);
    World* (*make_world)(const WorldSpec&);
    void (*draw)(NoiseKind, uint64_t key, uint64_t index, int64_t count, double scale,
                 const double* value, double* out);
    void (*uniforms)(uint64_t key, uint64_t stream, int64_t count, double* out);
    uint64_t (*lot)(uint64_t key, uint64_t stream, uint64_t index);
    double (*log_ratio)(NoiseKind, int64_t count, const double* y, const double* zero,
                        const double* one, double scale);
    void (*hash_names)(const unsigned char* text, const int64_t* offsets, int64_t count, uint64_t* out);
    int64_t (*tally)(const Tally&, int64_t cap, unsigned char over, const uint64_t* names,
                     unsigned char* status, int64_t start, int64_t count);
    void (*move_tally)(const Tally& from, const Tally& to);
    void (*inspect_rows)(const LogRecipe&, const double* xs, int64_t rows, unsigned char* status);
    void (*absorb_rows)(const LogRecipe&, const double* xs, const double* rs,
                        const unsigned char* status, int64_t rows, const LogSums&);
};
#if defined(__x86_64__)
extern const Arch arch_v2, arch_v3, arch_v4;
#else
extern const Arch arch_generic;
#endif
}  // namespace dpb
