// Bandits and audits on a GPU: one replication, or one run of an audit, per thread; all rounds inside one kernel.
//
// CuPy compiles this file with NVRTC, and g++ compiles it as plain C++ (the shim at the top), so that tests on a machine
// without a GPU run the same source. What varies is fixed while compiling, so that matrices live in registers:
//   DIM, SHOWN, ALGORITHM, NOISE   features, arms in a slate, and what is played, with which noise
//   REAL                           float in simulations, double where the arithmetic itself is tested
//   INJECTED                       slates, reward noise, privacy noise and lots come from arrays instead of generators
// It simulates: noise made here must never protect anyone.
//
// Where single precision needs care, and what is done about it:
//   * A⁻¹ is updated by Sherman–Morrison for the whole run. An error in it shrinks with A⁻¹ itself, so that it stays near
//     √t·6e-8 of the matrix; nothing is refreshed.
//   * θ̂ follows its own recursion and the noise of a release is kept apart from it: what is published is θ̂ plus a linear
//     function of noise. No sum grows with t, where a moment vector b would lose digits.
//   * The anytime filter's information grows like t² in some directions and hardly in others: it is kept, factored and
//     inverted in double precision, at releases only.
//   * Reward and regret are summed in single precision for at most 256 rounds, then added to double precision totals.

#ifdef __CUDACC__
#define INLINE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define ONE_BY_ONE _Pragma("unroll 1")
#else
#include <cmath>
#define INLINE static inline
#define UNROLL
#define ONE_BY_ONE
#endif

#ifndef REAL
#define REAL float
#endif
typedef REAL real;
typedef unsigned int word;
typedef unsigned long long wide;

// What is played.
#define RANDOM 0
#define LINUCB 1
#define LOCAL 2      // noise on each reward
#define TREE 3       // noise on sums of x·r
#define TOEPLITZ 4
#define DGS 5        // noise on A⁻¹·(sum of a node), Δ from the public A
#define INCREMENT 6  // noise on increments of θ̂, as published
#define ANYTIME 7
#define EPISODES 8   // one release each time det A has grown

#define GAUSSIAN 0
#define LAPLACE 1
#define LAPLACE_L2 2

#ifndef DIM
#define DIM 1
#endif
#ifndef SHOWN
#define SHOWN 1
#endif
#ifndef ALGORITHM
#define ALGORITHM LINUCB
#endif
#ifndef NOISE
#define NOISE GAUSSIAN
#endif
#ifndef THREADS
#define THREADS 128
#endif
#ifndef BLOCKS
#define BLOCKS 4
#endif
#define LEVELS 31  // of a tree: as many as rounds have bits

#define PACKED(n) ((n) * ((n) + 1) / 2)
#define AT(i, k) ((i) * ((i) + 1) / 2 + (k))  // packed lower triangle, k ≤ i
#define BOTH(i, k) ((i) >= (k) ? AT(i, k) : AT(k, i))
#define ROW ((DIM + 3) / 4 * 4)               // rows of arms start at multiples of four numbers: one load takes four
#define FULL (DIM + 1)                        // θ and an intercept
#define FULL_ROW ((FULL + 3) / 4 * 4)

// Scores closer than this are a tie, as in `numerics.TIE`; in single precision all scores of round 1 agree to about 1e-6.
#define TIE ((real)(sizeof(real) == 8 ? 1e-12 : 1e-6))

// ------------------------------------------------------------------ arithmetic that exists in both precisions

INLINE float root(float x) { return sqrtf(x); }
INLINE double root(double x) { return sqrt(x); }
INLINE float logarithm(float x) { return logf(x); }
INLINE double logarithm(double x) { return log(x); }
INLINE float logarithm1(float x) { return log1pf(x); }
INLINE double logarithm1(double x) { return log1p(x); }
INLINE real larger(real a, real b) { return a > b ? a : b; }
INLINE real smaller(real a, real b) { return a < b ? a : b; }
INLINE real clamp(real x, real low, real high) { return smaller(larger(x, low), high); }
INLINE real size_of(real x) { return x < 0 ? -x : x; }

#ifdef __CUDACC__
INLINE void circle(float angle, float* sine, float* cosine) { __sincosf(angle, sine, cosine); }
INLINE void circle(double angle, double* sine, double* cosine) { sincos(angle, sine, cosine); }
INLINE int lowest_bit(word n) { return __ffs((int)n) - 1; }
INLINE word high_product(word a, word b) { return __umulhi(a, b); }
// The 32 threads of a warp run in step and can look at each other's numbers.
#define LANES 32
INLINE int own_lane() { return (int)(threadIdx.x & 31u); }
INLINE word lanes_where(bool mine) { return __ballot_sync(0xffffffffu, mine); }
INLINE real from_lane(real mine, int lane) { return __shfl_sync(0xffffffffu, mine, lane); }
INLINE real largest_of_lanes(real mine) {
  for (int step = 16; step > 0; step /= 2) mine = larger(mine, __shfl_xor_sync(0xffffffffu, mine, step));
  return mine;
}
#else
INLINE void circle(float angle, float* sine, float* cosine) { *sine = sinf(angle); *cosine = cosf(angle); }
INLINE void circle(double angle, double* sine, double* cosine) { *sine = sin(angle); *cosine = cos(angle); }
INLINE int lowest_bit(word n) { return __builtin_ctz(n); }
INLINE word high_product(word a, word b) { return (word)(((wide)a * b) >> 32); }
#define LANES 1
INLINE int own_lane() { return 0; }
INLINE word lanes_where(bool mine) { return mine; }
INLINE real from_lane(real mine, int) { return mine; }
INLINE real largest_of_lanes(real mine) { return mine; }
#endif

struct alignas(4 * sizeof(real)) Four { real at[4]; };

// The first `count` numbers of a row that starts at a multiple of four.
template <int count> INLINE void load(const real* row, real* out) {
  UNROLL for (int i = 0; i < count; i += 4) {
    Four four = *(const Four*)(row + i);
    UNROLL for (int k = 0; k < 4; k++) if (i + k < count) out[i + k] = four.at[k];
  }
}

// ------------------------------------------------------------------ random numbers, addressed by counter
//
// Philox4x32-10 (Salmon, Moraes, Dror & Shaw 2011). The counter is (round, block within the round and purpose, seed); the
// key is the same for all, so that its schedule costs nothing. A draw is a pure function of seed, round and purpose.

#define FOR_WORLD 0u
#define FOR_NOISE 0x10000u
#define FOR_LOTS 0x20000u

struct Words { word at[4]; };

INLINE Words philox(word a, word b, word c, word d, word key, word other_key) {
  UNROLL for (int i = 0; i < 10; i++) {
    wide left = (wide)0xD2511F53u * a, right = (wide)0xCD9E8D57u * c;
    a = (word)(right >> 32) ^ b ^ key;
    c = (word)(left >> 32) ^ d ^ other_key;
    b = (word)right;
    d = (word)left;
    key += 0x9E3779B9u;
    other_key += 0xBB67AE85u;
  }
  return {{a, b, c, d}};
}

INLINE Words bits(word round, word block, wide seed) {
  return philox(round, block, (word)seed, (word)(seed >> 32), 0x64706261u, 0x6e646974u);
}

// Two standard normal numbers (Box & Muller) from two words; none is larger than 6.77.
INLINE void normals(word a, word b, real* first, real* second) {
  real u = (real)a * (real)2.3283064365386963e-10 + (real)1.1641532182693481e-10;
  real radius = root((real)-2 * logarithm(u)), sine, cosine;
  circle((real)(int)b * (real)1.4629180792671596e-09, &sine, &cosine);
  *first = radius * cosine;
  *second = radius * sine;
}

INLINE real laplace(word a) {
  real u = (real)(a >> 1) * (real)4.656612873077393e-10 + (real)2.3283064365386963e-10;
  real size = -logarithm(u);
  return a & 1u ? size : -size;
}

// `count` numbers of scale 1 for the release of this round.
template <int count> INLINE void draw(wide seed, word round, real* out) {
  UNROLL for (int i = 0; i < count; i += 4) {
    Words drawn = bits(round, FOR_NOISE + i / 4, seed);
    real four[4];
    if (NOISE == GAUSSIAN) {
      normals(drawn.at[0], drawn.at[1], four, four + 1);
      normals(drawn.at[2], drawn.at[3], four + 2, four + 3);
    } else {
      UNROLL for (int k = 0; k < 4; k++) four[k] = laplace(drawn.at[k]);
    }
    UNROLL for (int k = 0; k < 4; k++) if (i + k < count) out[i + k] = four[k];
  }
}

// ------------------------------------------------------------------ small symmetric matrices, packed

template <int n> INLINE void multiply(const real* matrix, const real* vector, real* out) {
  UNROLL for (int i = 0; i < n; i++) {
    real total = 0;
    UNROLL for (int k = 0; k < n; k++) total += matrix[BOTH(i, k)] * vector[k];
    out[i] = total;
  }
}

template <int n> INLINE real inner(const real* a, const real* b) {
  real total = 0;
  UNROLL for (int i = 0; i < n; i++) total += a[i] * b[i];
  return total;
}

// xᵀMx, each pair of coordinates once.
template <int n> INLINE real form(const real* matrix, const real* x) {
  real total = 0;
  UNROLL for (int i = 0; i < n; i++) {
    real half = (real)0.5 * matrix[AT(i, i)] * x[i];
    UNROLL for (int k = 0; k < i; k++) half += matrix[AT(i, k)] * x[k];
    total += half * x[i];
  }
  return total + total;
}

// M ← its lower factor L with M = LLᵀ, in place; `inverse` gets 1/L_ii.
template <int n, typename number> INLINE void factorise(number* matrix, number* inverse) {
  UNROLL for (int i = 0; i < n; i++) {
    UNROLL for (int j = 0; j <= i; j++) {
      number total = matrix[AT(i, j)];
      UNROLL for (int k = 0; k < j; k++) total -= matrix[AT(i, k)] * matrix[AT(j, k)];
      if (i == j) {
        total = root(total > (number)1e-30 ? total : (number)1e-30);
        inverse[i] = 1 / total;
        matrix[AT(i, i)] = total;
      } else {
        matrix[AT(i, j)] = total * inverse[j];
      }
    }
  }
}

// vector ← L⁻¹·vector, and vector ← L⁻ᵀ·vector.
template <int n, typename number> INLINE void forward(const number* factor, const number* inverse, number* vector) {
  UNROLL for (int i = 0; i < n; i++) {
    number total = vector[i];
    UNROLL for (int k = 0; k < i; k++) total -= factor[AT(i, k)] * vector[k];
    vector[i] = total * inverse[i];
  }
}

template <int n, typename number> INLINE void backward(const number* factor, const number* inverse, number* vector) {
  UNROLL for (int i = n - 1; i >= 0; i--) {
    number total = vector[i];
    UNROLL for (int k = i + 1; k < n; k++) total -= factor[AT(k, i)] * vector[k];
    vector[i] = total * inverse[i];
  }
}

// ------------------------------------------------------------------ what a kernel is given

// Places in `settings`.
#define POOL 0            // arms in the pool
#define REWARD_NOISE 1
#define LOW 2             // rewards are clipped to [LOW, HIGH] before anything learns from them
#define HIGH 3
#define RIDGE 4
#define MAX_NORM 5
#define REFRESH 6         // DGS: the maximum over arms is recomputed at every multiple of this; 0: only when it has grown
#define GROWTH 7          // EPISODES: an episode ends when log det A has grown by this
#define WINDOW 8          // ANYTIME, like the rest: half the width of residuals
#define SCALE 9
#define REWARD_VARIANCE 10
#define RANGE_LOW 11
#define RANGE_HIGH 12
#define DECAYS 13         // TOEPLITZ: how many; ANYTIME: how many releases

struct Given {
  const real* pool;            // this group's arms, one a row
  const real* instruments;     // ANYTIME: a unit instrument for each
  const double* prior;         // ANYTIME: precision (packed) and pull
  const double* settings;
  const double* table;         // TOEPLITZ: rates, then weights; ANYTIME: shown and kept shares
  const int* moments;          // ANYTIME: the rounds of the releases
  const real* alphas;          // one for each round, or one
  const real* scales;          // likewise: the noise of round t, in units of its sensitivity where that is found here
  int alpha_step, scale_step;
  int arms;                    // settings in this kernel's own precision: converting them in every round would cost
  real reward_noise_scale, low, high;
  const int* shown;            // INJECTED, like the rest
  const real* reward_noise;
  const real* noise;
  const wide* lots;
};

struct Tally {
  real reward, regret;         // since they were last added to the totals
  double total_reward, total_regret;
  int next;                    // the next record
};

INLINE void settle(Tally& tally) {
  tally.total_reward += tally.reward;
  tally.total_regret += tally.regret;
  tally.reward = tally.regret = 0;
}

struct Recorder {
  const int* rounds;
  int count, stride, place;
  float* out;                  // [record][reward, regret, error][replication]
  real* thetas;                // INJECTED: [record][coordinate][replication], or none
};

// Write a row after round t, if it is one of the recorded ones.
INLINE void record(const Recorder& to, Tally& tally, int t, const real* theta, const real* truth) {
  if ((t & 255) == 0) settle(tally);
  if (tally.next >= to.count || to.rounds[tally.next] != t) return;
  settle(tally);
  real square = 0;
  UNROLL for (int i = 0; i < DIM; i++) square += (theta[i] - truth[i]) * (theta[i] - truth[i]);
  float* row = to.out + (wide)tally.next * 3 * to.stride + to.place;
  row[0] = (float)tally.total_reward;
  row[to.stride] = (float)tally.total_regret;
  row[2 * to.stride] = (float)root(square);
#ifdef INJECTED
  for (int i = 0; i < DIM; i++) to.thetas[((wide)tally.next * DIM + i) * to.stride + to.place] = theta[i];
#endif
  tally.next++;
}

// ------------------------------------------------------------------ a round's slate, choice and payment

struct Slate {
  int arm[SHOWN];
  real reward_noise;
  word lot;
};

// Which arms are shown, and this round's reward noise. Floyd's way to draw distinct numbers: a repeated one becomes the
// largest allowed, so that nothing is drawn twice and every set is equally likely.
INLINE Slate slate(const Given& given, wide seed, int t) {
  Slate out;
#ifdef INJECTED
  for (int j = 0; j < SHOWN; j++) out.arm[j] = given.shown[(wide)(t - 1) * SHOWN + j];
  out.reward_noise = given.reward_noise[t - 1];
  out.lot = 0;
#else
  word drawn[(SHOWN + 2 + 3) / 4 * 4];
  UNROLL for (int i = 0; i < (SHOWN + 2 + 3) / 4; i++) {
    Words four = bits((word)t, FOR_WORLD + i, seed);
    UNROLL for (int k = 0; k < 4; k++) drawn[4 * i + k] = four.at[k];
  }
  int above = given.arms - SHOWN;
  UNROLL for (int j = 0; j < SHOWN; j++) {
    int arm = (int)high_product(drawn[j], (word)(above + j + 1));
    bool again = false;
    UNROLL for (int i = 0; i < j; i++) again |= out.arm[i] == arm;
    out.arm[j] = again ? above + j : arm;
  }
  real unused;
  normals(drawn[SHOWN], drawn[SHOWN + 1], &out.reward_noise, &unused);
  out.reward_noise *= given.reward_noise_scale;
  out.lot = ALGORITHM == RANDOM ? bits((word)t, FOR_LOTS, seed).at[0] : 0;
#endif
  return out;
}

struct Choice {
  int place, arm;              // in the slate; in the pool
  real mean, best;             // expected reward of the choice, and of the best arm
  real highest;                // its score
  wide lot;
};

// Take an arm into account. Among ties the highest lot wins; without lots, the first, which the slate drew at random.
INLINE void consider(Choice& choice, const Given& given, int t, int place, int arm, real score, real mean) {
  bool better = place == 0 || score > choice.highest + TIE;
#ifdef INJECTED
  wide lot = given.lots[(wide)(t - 1) * SHOWN + place];
  bool tied = place > 0 && !better && score >= choice.highest - TIE;
  if (better || (tied && lot > choice.lot)) choice.lot = lot, better = true;
#endif
  if (better) {
    choice.place = place;
    choice.arm = arm;
    choice.highest = score;
    choice.mean = mean;
  }
  choice.best = place == 0 ? mean : larger(choice.best, mean);
}

// The arm with the highest x·θ + α√(xᵀMx), or one drawn by lot.
INLINE Choice choose(const Given& given, const Slate& slate, int t, real alpha, const real* theta, const real* matrix,
                     const real* truth) {
  Choice choice;
  UNROLL for (int j = 0; j < SHOWN; j++) {
    real x[DIM];
    load<DIM>(given.pool + slate.arm[j] * ROW, x);
    real mean = inner<DIM>(truth, x), score = 0;
    if (ALGORITHM == RANDOM) {
#ifndef INJECTED
      score = (int)high_product(slate.lot, SHOWN) == j ? 1 : 0;
#endif
    } else {
      score = inner<DIM>(theta, x) + alpha * root(larger(form<DIM>(matrix, x), 0));
    }
    consider(choice, given, t, j, slate.arm[j], score, mean);
  }
  return choice;
}

// The same with the bonus of x − x̄, x̄ the slate's mean: what all arms share cannot tell them apart.
INLINE Choice choose_about_mean(const Given& given, const Slate& slate, int t, real alpha, const real* theta,
                                const real* matrix, const real* truth) {
  real middle[DIM] = {};
  UNROLL for (int j = 0; j < SHOWN; j++) {
    real x[DIM];
    load<DIM>(given.pool + slate.arm[j] * ROW, x);
    UNROLL for (int i = 0; i < DIM; i++) middle[i] += x[i];
  }
  UNROLL for (int i = 0; i < DIM; i++) middle[i] *= (real)1 / SHOWN;
  Choice choice;
  UNROLL for (int j = 0; j < SHOWN; j++) {
    real x[DIM];
    load<DIM>(given.pool + slate.arm[j] * ROW, x);
    real mean = inner<DIM>(truth, x), predicted = inner<DIM>(theta, x);
    UNROLL for (int i = 0; i < DIM; i++) x[i] -= middle[i];
    consider(choice, given, t, j, slate.arm[j], predicted + alpha * root(larger(form<DIM>(matrix, x), 0)), mean);
  }
  return choice;
}

// Pay for the choice; returns the reward as it may be learned from.
INLINE real pay(const Given& given, const Slate& slate, const Choice& choice, Tally& tally) {
  real reward = choice.mean + slate.reward_noise;
  tally.reward += reward;
  tally.regret += choice.best - choice.mean;
  return clamp(reward, given.low, given.high);
}

// This round's noise, of scale 1.
template <int count> INLINE void noise_of(const Given& given, wide seed, int t, real* out) {
#ifdef INJECTED
  for (int i = 0; i < count; i++) out[i] = given.noise[(wide)(t - 1) * count + i];
#else
  draw<count>(seed, (word)t, out);
#endif
}

// ------------------------------------------------------------------ LinUCB and its private relatives

#if ALGORITHM == DGS
// The arms that can have the largest ‖A⁻¹x‖: those that came close to it when all were last looked at.
//
// With P = A⁻¹ then and now, ‖P_now x‖ ≤ κ‖P_then x‖ + ‖P_now − κP_then‖·‖x‖ for every κ; the best κ takes out what all
// directions shrink alike. So as long as the largest among the few is at least κ·below + ‖P_now − κP_then‖ (in Frobenius'
// norm), where all others were under `below`, it is the largest of all, exactly: one look at 1,000 arms serves eight times.
// A look at all arms for one replication is shared by the lanes of its warp.
#define WATCHED 48

struct Watch {
  int arms[WATCHED], count;
  real below, share;           // `below` was chosen as this share of the largest
  real then[PACKED(DIM)];
};

// What no arm outside the list exceeds now.
INLINE real most_of_others(const real* inverse, const Watch& watch, real max_norm) {
  real both = 0, old = 0, now = 0;
  UNROLL for (int i = 0; i < DIM; i++) {
    UNROLL for (int k = 0; k <= i; k++) {
      real then = watch.then[AT(i, k)], twice = i == k ? 1 : 2;
      both += twice * then * inverse[AT(i, k)];
      old += twice * then * then;
    }
  }
  real shrunk = both / old;
  UNROLL for (int i = 0; i < DIM; i++) {
    UNROLL for (int k = 0; k <= i; k++) {
      real left = inverse[AT(i, k)] - shrunk * watch.then[AT(i, k)];
      now += (i == k ? 1 : 2) * left * left;
    }
  }
  return shrunk * watch.below + root(now) * max_norm * (NOISE == LAPLACE ? root((real)DIM) : 1);
}

// ‖A⁻¹x‖, from (A⁻¹)² for L2 and from A⁻¹ for L1, which Laplace noise needs.
INLINE real length_of(const real* matrix, const real* x) {
  if (NOISE != LAPLACE) return root(larger(form<DIM>(matrix, x), 0));
  real y[DIM], total = 0;
  multiply<DIM>(matrix, x, y);
  UNROLL for (int i = 0; i < DIM; i++) total += size_of(y[i]);
  return total;
}

// Look at all arms for the replication of lane `leader`; its list is renewed. Returns the largest length.
INLINE real look_at_all(const Given& given, const real* matrix, Watch& watch, int leader, real below) {
  real theirs[PACKED(DIM)], largest = 0;
  UNROLL for (int i = 0; i < PACKED(DIM); i++) theirs[i] = from_lane(matrix[i], leader);
  below = from_lane(below, leader);
  int lane = own_lane(), count = 0;
  ONE_BY_ONE for (int first = 0; first < given.arms; first += LANES) {
    int arm = first + lane < given.arms ? first + lane : first;
    real x[DIM];
    load<DIM>(given.pool + arm * ROW, x);
    real length = length_of(theirs, x);
    largest = larger(largest, length);
    word close = lanes_where(length >= below && arm == first + lane);
    ONE_BY_ONE while (close) {
      if (lane == leader && count < WATCHED) watch.arms[count] = first + lowest_bit(close);
      count++;
      close &= close - 1;
    }
  }
  largest = largest_of_lanes(largest);
  if (lane == leader) {
    watch.count = count < WATCHED ? count : WATCHED;
    watch.below = below;
    if (count > WATCHED) {     // too many came close: nothing can be said of those left out
      watch.below = 2 * largest;
      watch.share = (real)0.5 * (1 + watch.share);
    } else if (count < WATCHED / 4) {
      watch.share = larger(watch.share - (real)0.02, (real)0.7);
    }
  }
  return largest;
}

// max ‖A⁻¹x‖ over the pool.
INLINE real observed(const Given& given, const real* inverse, Watch& watch, real max_norm) {
  real matrix[PACKED(DIM)];
  UNROLL for (int i = 0; i < DIM; i++) {
    UNROLL for (int k = 0; k <= i; k++) {
      real total = 0;
      UNROLL for (int m = 0; m < DIM; m++) total += inverse[BOTH(i, m)] * inverse[BOTH(k, m)];
      matrix[AT(i, k)] = NOISE == LAPLACE ? inverse[AT(i, k)] : total;
    }
  }
  real largest = 0;
  ONE_BY_ONE for (int n = 0; n < watch.count; n++) {
    real x[DIM];
    load<DIM>(given.pool + watch.arms[n] * ROW, x);
    largest = larger(largest, length_of(matrix, x));
  }
  word unsure = lanes_where(largest < most_of_others(inverse, watch, max_norm));
  ONE_BY_ONE while (unsure) {
    int leader = lowest_bit(unsure);
    unsure &= unsure - 1;
    real found = look_at_all(given, matrix, watch, leader, watch.share * largest);
    if (own_lane() == leader) {
      largest = found;
      UNROLL for (int i = 0; i < PACKED(DIM); i++) watch.then[i] = inverse[i];
    }
  }
  return largest * (real)(1 + 1e-9);
}
#endif

#if ALGORITHM != ANYTIME
INLINE void play_ridge(const Given& given, wide seed, const real* truth, int rounds, Recorder to, int* chosen) {
  real inverse[PACKED(DIM)], theta[DIM], clean[DIM];  // A⁻¹, the released parameter, θ̂
  real ridge = (real)given.settings[RIDGE];
  UNROLL for (int i = 0; i < DIM; i++) {
    theta[i] = clean[i] = 0;
    UNROLL for (int k = 0; k <= i; k++) inverse[AT(i, k)] = i == k ? 1 / ridge : 0;
  }
#if ALGORITHM == TREE || ALGORITHM == INCREMENT || ALGORITHM == DGS
  // Noise of the prefix at the end of the latest node of each level. Nothing ever asks for level 0: nodes of odd rounds
  // are dropped in the next.
  real kept[LEVELS][DIM], prefix[DIM] = {};
#endif
#if ALGORITHM == DGS
  real gram[PACKED(DIM)], bound = 0, growth = 0, earlier[DIM] = {}, max_norm = (real)given.settings[MAX_NORM];
  int refresh = (int)given.settings[REFRESH];
  Watch watch;
  watch.count = 0;
  watch.below = 2 * max_norm / ridge;  // nothing is watched yet
  watch.share = (real)0.85;
  UNROLL for (int i = 0; i < PACKED(DIM); i++) watch.then[i] = inverse[i];
  UNROLL for (int i = 0; i < DIM; i++) UNROLL for (int k = 0; k <= i; k++) gram[AT(i, k)] = i == k ? ridge : 0;
#endif
#if ALGORITHM == TOEPLITZ
  int decays = (int)given.settings[DECAYS];
  real buffers[8][DIM], total[DIM] = {};
  for (int m = 0; m < 8; m++) for (int i = 0; i < DIM; i++) buffers[m][i] = 0;
#endif
#if ALGORITHM == EPISODES
  real anchor[PACKED(DIM)], carried[DIM] = {}, grown = 0, growth = (real)given.settings[GROWTH];
  UNROLL for (int i = 0; i < PACKED(DIM); i++) anchor[i] = inverse[i];
#endif
  Tally tally = {};
  ONE_BY_ONE for (int t = 1; t <= rounds; t++) {
    real alpha = given.alphas[(t - 1) * given.alpha_step];
#if ALGORITHM != RANDOM && ALGORITHM != LINUCB
    real scale = given.scales[(t - 1) * given.scale_step];
#endif
    Slate shown = slate(given, seed, t);
#if ALGORITHM == EPISODES
    Choice choice = choose(given, shown, t, alpha, theta, anchor, truth);
#else
    Choice choice = choose(given, shown, t, alpha, theta, inverse, truth);
#endif
    real reward = pay(given, shown, choice, tally);
    (void)reward;
#ifdef INJECTED
    chosen[t - 1] = choice.place;
#endif
#if ALGORITHM != RANDOM
    real x[DIM], step[DIM];
    load<DIM>(given.pool + choice.arm * ROW, x);
    multiply<DIM>(inverse, x, step);
    real quadratic = inner<DIM>(step, x), factor = 1 / (1 + quadratic);
    UNROLL for (int i = 0; i < DIM; i++) {
      real scaled = step[i] * factor;
      UNROLL for (int k = 0; k <= i; k++) inverse[AT(i, k)] -= scaled * step[k];
    }
#if ALGORITHM == LOCAL
    real extra[1];
    noise_of<1>(given, seed, t, extra);
    reward += scale * extra[0];
#endif
    real gain = (reward - inner<DIM>(clean, x)) * factor;
    UNROLL for (int i = 0; i < DIM; i++) clean[i] += gain * step[i];
#endif

#if ALGORITHM == LINUCB || ALGORITHM == LOCAL
    UNROLL for (int i = 0; i < DIM; i++) theta[i] = clean[i];

#elif ALGORITHM == TREE || ALGORITHM == INCREMENT
    real noise[DIM];
    noise_of<DIM>(given, seed, t, noise);
    if (t & 1) {  // the node joins the whole prefix before it
      UNROLL for (int i = 0; i < DIM; i++) prefix[i] += scale * noise[i];
    } else {
      word rest = (word)t & ((word)t - 1);
      int level = lowest_bit((word)t), above = rest ? lowest_bit(rest) : 0;
      UNROLL for (int i = 0; i < DIM; i++) {
        prefix[i] = scale * noise[i] + (rest ? kept[above][i] : 0);
        kept[level][i] = prefix[i];
      }
    }
    if (ALGORITHM == INCREMENT) {
      UNROLL for (int i = 0; i < DIM; i++) theta[i] = clean[i] + prefix[i];
    } else {
      multiply<DIM>(inverse, prefix, theta);
      UNROLL for (int i = 0; i < DIM; i++) theta[i] += clean[i];
    }

#elif ALGORITHM == TOEPLITZ
    real noise[DIM];
    noise_of<DIM>(given, seed, t, noise);
    UNROLL for (int i = 0; i < DIM; i++) noise[i] *= scale;
    ONE_BY_ONE for (int m = 0; m < decays; m++) UNROLL for (int i = 0; i < DIM; i++) noise[i] -= buffers[m][i];
    ONE_BY_ONE for (int m = 0; m < decays; m++) {
      real rate = (real)given.table[m], weight = (real)given.table[decays + m];
      UNROLL for (int i = 0; i < DIM; i++) buffers[m][i] += weight * noise[i] - rate * buffers[m][i];
    }
    UNROLL for (int i = 0; i < DIM; i++) total[i] += noise[i];
    multiply<DIM>(inverse, total, theta);
    UNROLL for (int i = 0; i < DIM; i++) theta[i] += clean[i];

#elif ALGORITHM == EPISODES
    grown += logarithm1(quadratic);
    if (grown >= growth) {
      grown = 0;
      real noise[DIM];
      noise_of<DIM>(given, seed, t, noise);
      UNROLL for (int i = 0; i < DIM; i++) carried[i] += scale * noise[i];
      UNROLL for (int i = 0; i < PACKED(DIM); i++) anchor[i] = inverse[i];
      multiply<DIM>(inverse, carried, theta);
      UNROLL for (int i = 0; i < DIM; i++) theta[i] += clean[i];
    }

#elif ALGORITHM == DGS
    // A valid bound on max‖A⁻¹x‖, as in `sensitivity.observed_lazily`. All lanes of a warp recompute when one has to: the
    // others would wait for it anyway, and an early recomputation is as valid.
    real square = inner<DIM>(step, step), length = root(square), along = length;
    if (NOISE == LAPLACE) {
      along = 0;
      UNROLL for (int i = 0; i < DIM; i++) along += size_of(step[i]);
    }
    growth += along * length * max_norm * factor;
    bool due = bound <= 0 || growth > (real)0.05 * bound || (refresh > 0 && t % refresh == 0);
    if (lanes_where(due)) {
      bound = observed(given, inverse, watch, max_norm);
      growth = 0;
    }
    // θ^p = A⁻¹·(b + Σ A_e·z_e) = θ̂ + A⁻¹·(older nodes) + z, since the newest node has A_e = A. So A itself is only
    // needed when a node outlives its round, which is every second one.
    real noise[DIM];
    noise_of<DIM>(given, seed, t, noise);
    scale *= bound + growth;
    UNROLL for (int i = 0; i < DIM; i++) noise[i] *= scale;
    if (t & 1) {
      multiply<DIM>(inverse, prefix, theta);
      UNROLL for (int i = 0; i < DIM; i++) theta[i] += clean[i] + noise[i], earlier[i] = x[i];
    } else {
      word rest = (word)t & ((word)t - 1);
      int level = lowest_bit((word)t), above = rest ? lowest_bit(rest) : 0;
      UNROLL for (int i = 0; i < DIM; i++) prefix[i] = rest ? kept[above][i] : 0;
      multiply<DIM>(inverse, prefix, theta);
      UNROLL for (int i = 0; i < DIM; i++) theta[i] += clean[i] + noise[i];
      UNROLL for (int i = 0; i < DIM; i++) {
        UNROLL for (int k = 0; k <= i; k++) {
          real entry = gram[AT(i, k)] + (earlier[i] * earlier[k] + x[i] * x[k]);
          gram[AT(i, k)] = entry;
          prefix[i] += entry * noise[k];
          if (k < i) prefix[k] += entry * noise[i];
        }
      }
      UNROLL for (int i = 0; i < DIM; i++) kept[level][i] = prefix[i];
    }
#endif
    record(to, tally, t, theta, truth);
  }
}
#endif

// ------------------------------------------------------------------ the anytime bandit
//
// The state of `bandits.posterior`, reduced: of N and Ξ only D = N + Ξ is ever used, of O and ξ only g = O − ξ, and with
// F = q²Π + s² one release does D ← s²F⁻¹D, Π ← s²F⁻¹Π, g ← g − K(y + qg), K = qΠF⁻¹ (because I − qK = s²F⁻¹). Information
// on θ⁺ is kept as a matrix in double precision, which holds what a triangular root in single precision would.

#define WAITING 64  // rounds that wait to be added to the sums: only their arm and their item are noted

struct Filter {
  real design[FULL][FULL];     // D, one row an instrument
  real offset[FULL];           // g
  real spread[PACKED(FULL)];   // Σ ω²·u·uᵀ since the last release
  real covariance[FULL][FULL]; // Π
  real sums[FULL];             // the private sum
  double information[PACKED(FULL)];
  double pulled[FULL];
  real seen[FULL][FULL];       // scratch: columns of L⁻¹·qD
  int arms[WAITING];
  real items[WAITING];
};

// Add the rounds that waited, in two passes, each with its sums in registers.
INLINE void absorb(Filter& state, const Given& given, int waiting, const real* estimate) {
  real half = (real)given.settings[WINDOW], weight = (real)0.5 / half;
  real low = (real)given.settings[RANGE_LOW] + half, high = (real)given.settings[RANGE_HIGH] - half;
  {
    real design[FULL][FULL];
    UNROLL for (int i = 0; i < FULL; i++) UNROLL for (int k = 0; k < FULL; k++) design[i][k] = state.design[i][k];
    ONE_BY_ONE for (int n = 0; n < waiting; n++) {
      real x[FULL], u[FULL];
      load<DIM>(given.pool + state.arms[n] * ROW, x);
      x[DIM] = 1;
      load<FULL>(given.instruments + state.arms[n] * FULL_ROW, u);
      UNROLL for (int i = 0; i < FULL; i++) {
        real scaled = weight * u[i];
        UNROLL for (int k = 0; k < FULL; k++) design[i][k] += scaled * x[k];
      }
    }
    UNROLL for (int i = 0; i < FULL; i++) UNROLL for (int k = 0; k < FULL; k++) state.design[i][k] = design[i][k];
  }
  real spread[PACKED(FULL)], offset[FULL], sums[FULL];
  UNROLL for (int i = 0; i < PACKED(FULL); i++) spread[i] = state.spread[i];
  UNROLL for (int i = 0; i < FULL; i++) offset[i] = state.offset[i], sums[i] = state.sums[i];
  ONE_BY_ONE for (int n = 0; n < waiting; n++) {
    real x[DIM], u[FULL], item = state.items[n];
    load<DIM>(given.pool + state.arms[n] * ROW, x);
    load<FULL>(given.instruments + state.arms[n] * FULL_ROW, u);
    real prediction = clamp(inner<DIM>(estimate, x) + estimate[DIM], low, high);
    UNROLL for (int i = 0; i < FULL; i++) {
      real scaled = weight * u[i];
      offset[i] += scaled * prediction;
      sums[i] += item * u[i];
      scaled *= weight;
      UNROLL for (int k = 0; k <= i; k++) spread[AT(i, k)] += scaled * u[k];
    }
  }
  UNROLL for (int i = 0; i < PACKED(FULL); i++) state.spread[i] = spread[i];
  UNROLL for (int i = 0; i < FULL; i++) state.offset[i] = offset[i], state.sums[i] = sums[i];
}

// Release the sum with this noise and learn from it; all sums then shrink by `kept`.
INLINE void release(Filter& state, const Given& given, real shown, real kept, const real* noise) {
  real variance = (real)given.settings[REWARD_VARIANCE], scale = (real)given.settings[SCALE];
  real factor[PACKED(FULL)], inverse[FULL], surprise[FULL];
  UNROLL for (int i = 0; i < FULL; i++) {
    surprise[i] = shown * state.sums[i] + scale * noise[i] + shown * state.offset[i];
    state.sums[i] *= kept;
    UNROLL for (int k = 0; k <= i; k++) {
      real entry = (real)0.5 * (state.covariance[i][k] + state.covariance[k][i]) + variance * state.spread[AT(i, k)];
      state.covariance[i][k] = state.covariance[k][i] = entry;
      state.spread[AT(i, k)] = 0;
      factor[AT(i, k)] = shown * shown * entry + (i == k ? scale * scale : 0);
    }
  }
  factorise<FULL, real>(factor, inverse);
  forward<FULL, real>(factor, inverse, surprise);
  real back[FULL];
  UNROLL for (int i = 0; i < FULL; i++) back[i] = surprise[i];
  backward<FULL, real>(factor, inverse, back);
  ONE_BY_ONE for (int i = 0; i < FULL; i++) {
    real total = 0;
    UNROLL for (int k = 0; k < FULL; k++) total += state.covariance[i][k] * back[k];
    state.offset[i] = (state.offset[i] - shown * total) * kept;
  }
  real square = scale * scale;
  ONE_BY_ONE for (int j = 0; j < FULL; j++) {
    real column[FULL];
    UNROLL for (int i = 0; i < FULL; i++) column[i] = shown * state.design[i][j];
    forward<FULL, real>(factor, inverse, column);
    UNROLL for (int i = 0; i < FULL; i++) state.seen[j][i] = column[i];
    state.pulled[j] += inner<FULL>(column, surprise);
    ONE_BY_ONE for (int k = 0; k <= j; k++) {
      double total = 0;
      UNROLL for (int i = 0; i < FULL; i++) total += (double)column[i] * state.seen[k][i];
      state.information[AT(j, k)] += total;
    }
    backward<FULL, real>(factor, inverse, column);
    UNROLL for (int i = 0; i < FULL; i++) state.design[i][j] = square / shown * kept * column[i];
    UNROLL for (int i = 0; i < FULL; i++) column[i] = state.covariance[i][j];
    forward<FULL, real>(factor, inverse, column);
    backward<FULL, real>(factor, inverse, column);
    // Column j of the new Π is not read again before the next release, which takes the mean of both triangles.
    UNROLL for (int i = 0; i < FULL; i++) state.covariance[i][j] = square * kept * kept * column[i];
  }
}

// The posterior of (θ, intercept): its mean, and its covariance without the intercept.
INLINE void conclude(const Filter& state, const double* prior, real* estimate, real* covariance) {
  double factor[PACKED(FULL)], inverse[FULL], mean[FULL];
  UNROLL for (int i = 0; i < PACKED(FULL); i++) factor[i] = state.information[i] + prior[i];
  UNROLL for (int i = 0; i < FULL; i++) mean[i] = state.pulled[i] + prior[PACKED(FULL) + i];
  factorise<FULL, double>(factor, inverse);
  forward<FULL, double>(factor, inverse, mean);
  backward<FULL, double>(factor, inverse, mean);
  UNROLL for (int i = 0; i < FULL; i++) estimate[i] = (real)mean[i];
  // L ← L⁻¹ in place, column by column; then Σ = L⁻ᵀL⁻¹.
  UNROLL for (int j = 0; j < FULL; j++) {
    factor[AT(j, j)] = inverse[j];
    UNROLL for (int i = j + 1; i < FULL; i++) {
      double total = 0;
      UNROLL for (int k = j; k < i; k++) total -= factor[AT(i, k)] * factor[AT(k, j)];
      factor[AT(i, j)] = total * inverse[i];
    }
  }
  UNROLL for (int i = 0; i < DIM; i++) {
    UNROLL for (int k = 0; k <= i; k++) {
      double total = 0;
      UNROLL for (int m = i; m < FULL; m++) total += factor[AT(m, i)] * factor[AT(m, k)];
      covariance[AT(i, k)] = (real)total;
    }
  }
}

INLINE void play_anytime(const Given& given, wide seed, const real* truth, int rounds, Recorder to, int* chosen) {
  Filter state;
  ONE_BY_ONE for (int i = 0; i < FULL; i++) {
    state.offset[i] = state.sums[i] = 0;
    state.pulled[i] = 0;
    ONE_BY_ONE for (int k = 0; k < FULL; k++) state.design[i][k] = state.covariance[i][k] = 0;
  }
  ONE_BY_ONE for (int i = 0; i < PACKED(FULL); i++) state.spread[i] = 0, state.information[i] = 0;
  real half = (real)given.settings[WINDOW], weight = (real)0.5 / half;
  real low = (real)given.settings[RANGE_LOW] + half, high = (real)given.settings[RANGE_HIGH] - half;
  int releases = (int)given.settings[DECAYS], made = 0;
  real estimate[FULL], covariance[PACKED(DIM)];
  conclude(state, given.prior, estimate, covariance);
  Tally tally = {};
  int t = 0;
  ONE_BY_ONE while (t < rounds) {
    int due = made < releases ? given.moments[made] : rounds + 1;
    int waiting = 0;
    ONE_BY_ONE while (waiting < WAITING && t < rounds && t < due) {
      t++;
      real alpha = given.alphas[(t - 1) * given.alpha_step];
      Slate shown = slate(given, seed, t);
      Choice choice = choose_about_mean(given, shown, t, alpha, estimate, covariance, truth);
      real reward = pay(given, shown, choice, tally);
#ifdef INJECTED
      chosen[t - 1] = choice.place;
#endif
      real x[DIM];
      load<DIM>(given.pool + choice.arm * ROW, x);
      real prediction = clamp(inner<DIM>(estimate, x) + estimate[DIM], low, high);
      state.arms[waiting] = choice.arm;
      state.items[waiting] = clamp(reward - prediction, -half, half) * weight;
      waiting++;
      if (t < due) record(to, tally, t, estimate, truth);
    }
    absorb(state, given, waiting, estimate);
    if (t == due) {
      real noise[FULL];
      noise_of<FULL>(given, seed, t, noise);
      release(state, given, (real)given.table[made], (real)given.table[releases + made], noise);
      conclude(state, given.prior, estimate, covariance);
      made++;
      record(to, tally, t, estimate, truth);
    }
  }
}

// ------------------------------------------------------------------ audits
//
// A run's score is the log-likelihood ratio of its whole transcript, log p(y | changed) − log p(y | as it was). Only how far
// the two clean values are apart matters, in units of the noise: δ = (v₁ − v₀)/scale, one number for each coordinate that
// moves at all. Signs do not: the noise is symmetric.

// One number for each shift. Laplace: |z| − |z − δ| is written as a clamped line, whose ends are exact: a difference of
// rounded sizes would smear the atoms at ±δ differently on the two sides, and the smear would tell them apart.
INLINE real score_of(real shift, real noise, real side) {
  if (NOISE == GAUSSIAN) return noise * shift;
  return clamp(2 * noise + side * shift, -shift, shift);
}

INLINE real score_run(const real* shifts, int count, int width, real constant, real side, wide seed, wide run) {
  word low = (word)run, high = (word)(run >> 32), key = (word)seed, other = (word)(seed >> 32);
  real score = side * constant;
  if (NOISE == LAPLACE_L2) {  // K-norm: radius Gamma(width), and only the angle to the shift matters
    for (int n = 0; n < count; n++) {
      real along = 0, square = 0, radius = 0, shift = shifts[n];
      for (int i = 0; i < width; i++) {
        Words drawn = philox(low, high, (word)n, (word)i, key, other);
        real first, second;
        normals(drawn.at[0], drawn.at[1], &first, &second);
        if (i == 0) along = first;
        square += first * first;
        radius += size_of(laplace(drawn.at[2]));
      }
      real cosine = along / root(square), across = side * 2 * radius * shift * cosine + shift * shift;
      // ‖z + δ‖ − ‖z‖ on the changed side; ‖z‖ − ‖z − δ‖ on the other
      score += side * across / (radius + root(larger(radius * radius + across, 0)));
    }
    return score;
  }
  ONE_BY_ONE for (int n = 0; n < count; n += 4) {
    Words drawn = philox(low, high, (word)(n / 4), 0, key, other);
    real noise[4];
    if (NOISE == GAUSSIAN) {
      normals(drawn.at[0], drawn.at[1], noise, noise + 1);
      normals(drawn.at[2], drawn.at[3], noise + 2, noise + 3);
    } else {
      UNROLL for (int k = 0; k < 4; k++) noise[k] = laplace(drawn.at[k]);
    }
    UNROLL for (int k = 0; k < 4; k++) score += score_of(shifts[n + k], noise[k], side);  // padded with zeros
  }
  return score;
}

// The anytime bandit's clean values depend on its releases, through the prediction that is taken off each reward. All else
// is public and the same in every run, so it is given: `rows` has, for each round, the instrument u, the context x⁺, the
// estimate that holds before the first release, and the two rewards; `steps`, for each release, the shares shown and kept,
// the gain on g, the gain on the pull, the posterior covariance and the prior's pull.
#define ROUND_WIDTH (3 * FULL + 2)
#define RELEASE_WIDTH (2 + 3 * FULL * FULL + FULL)

INLINE real score_anytime(const real* rows, const real* steps, const int* moments, int rounds, int releases,
                          const double* settings, real side, wide seed, wide run, const real* injected) {
  word low_word = (word)run, high_word = (word)(run >> 32), key = (word)seed, other = (word)(seed >> 32);
  real half = (real)settings[WINDOW], weight = (real)0.5 / half, scale = (real)settings[SCALE];
  real low = (real)settings[RANGE_LOW] + half, high = (real)settings[RANGE_HIGH] - half;
  real sums[FULL] = {}, apart[FULL] = {}, offset[FULL] = {}, pulled[FULL] = {}, estimate[FULL], score = 0;
  int made = 0;
  ONE_BY_ONE for (int t = 0; t < rounds; t++) {
    const real* row = rows + t * ROUND_WIDTH;
    if (made == 0) UNROLL for (int i = 0; i < FULL; i++) estimate[i] = row[2 * FULL + i];
    real prediction = clamp(inner<FULL>(estimate, row + FULL), low, high);
    real before = row[3 * FULL], after = row[3 * FULL + 1];
    real item = clamp((side < 0 ? before : after) - prediction, -half, half) * weight;
    UNROLL for (int i = 0; i < FULL; i++) {
      sums[i] += item * row[i];
      offset[i] += weight * row[i] * prediction;
    }
    if (before != after) {
      real moved = (clamp(after - prediction, -half, half) - clamp(before - prediction, -half, half)) * weight;
      UNROLL for (int i = 0; i < FULL; i++) apart[i] += moved * row[i];
    }
    if (made < releases && moments[made] == t + 1) {
      const real* step = steps + made * RELEASE_WIDTH;
      const real *on_offset = step + 2, *on_pull = on_offset + FULL * FULL, *posterior = on_pull + FULL * FULL;
      const real* prior = posterior + FULL * FULL;
      real shown = step[0], kept = step[1], surprise[FULL];
      UNROLL for (int i = 0; i < FULL; i += 4) {
        Words drawn = philox(low_word, high_word, (word)made, (word)i, key, other);
        real noise[4];
        normals(drawn.at[0], drawn.at[1], noise, noise + 1);
        normals(drawn.at[2], drawn.at[3], noise + 2, noise + 3);
        UNROLL for (int k = 0; k < 4; k++) {
          if (i + k < FULL) {
            if (injected) noise[k] = injected[made * FULL + i + k];
            real shift = shown * apart[i + k] / scale;
            score += noise[k] * shift + side * (real)0.5 * shift * shift;
            surprise[i + k] = shown * (sums[i + k] + offset[i + k]) + scale * noise[k];
          }
        }
      }
      real fresh[FULL];
      UNROLL for (int i = 0; i < FULL; i++) {
        real change = 0;
        UNROLL for (int k = 0; k < FULL; k++) {
          change += on_offset[i * FULL + k] * surprise[k];
          pulled[i] += on_pull[i * FULL + k] * surprise[k];
        }
        offset[i] = (offset[i] - change) * kept;
        sums[i] *= kept;
        apart[i] *= kept;
        fresh[i] = pulled[i] + prior[i];
      }
      UNROLL for (int i = 0; i < FULL; i++) {
        real total = 0;
        UNROLL for (int k = 0; k < FULL; k++) total += posterior[i * FULL + k] * fresh[k];
        estimate[i] = total;
      }
      made++;
    }
  }
  return score;
}

// ------------------------------------------------------------------ entry points: the same arguments on both kinds of machine

#define PLAY_ARGUMENTS                                                                                                    \
  const real *pools, const real *instruments, const double *priors, const real *truths, const wide *seeds,               \
      const double *settings, const double *table, const int *moments, const real *alphas, int alpha_count,               \
      const real *scales, int scale_count, const int *recorded, int records, int rounds, int replications, float *out,    \
      const int *shown, const real *reward_noise, const real *noise, const wide *lots, real *thetas, int *chosen

#define SCORE_ARGUMENTS                                                                                                   \
  const real *shifts, int count, int width, double constant, int side, wide seed, wide first, wide runs, float *scores

#define SCORE_ANYTIME_ARGUMENTS                                                                                           \
  const real *rows, const real *steps, const int *moments, int rounds, int releases, const double *settings, int side,   \
      wide seed, wide first, wide runs, float *scores, const real *injected

INLINE void play_one(const real* pool, int group, int place, PLAY_ARGUMENTS) {
  int arms = (int)settings[POOL];
  Given given = {pool,
                 instruments + (wide)group * arms * FULL_ROW,
                 priors + (wide)group * (PACKED(FULL) + FULL),
                 settings,
                 table,
                 moments,
                 alphas + (wide)group * alpha_count,
                 scales + (wide)group * scale_count,
                 alpha_count > 1,
                 scale_count > 1,
                 arms,
                 (real)settings[REWARD_NOISE],
                 (real)settings[LOW],
                 (real)settings[HIGH],
                 shown,
                 reward_noise,
                 noise,
                 lots};
  real truth[DIM];
  UNROLL for (int i = 0; i < DIM; i++) truth[i] = truths[(wide)i * replications + place];
  Recorder to = {recorded, records, replications, place, out, thetas};
#if ALGORITHM == ANYTIME
  play_anytime(given, seeds[place], truth, rounds, to, chosen);
#else
  play_ridge(given, seeds[place], truth, rounds, to, chosen);
#endif
}

#define PASS_ON                                                                                                           \
  pools, instruments, priors, truths, seeds, settings, table, moments, alphas, alpha_count, scales, scale_count, recorded, \
      records, rounds, replications, out, shown, reward_noise, noise, lots, thetas, chosen

#ifdef __CUDACC__
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) play(PLAY_ARGUMENTS) {
  extern __shared__ Four shared[];
  int numbers = (int)settings[POOL] * (ROW / 4);
  const Four* mine = (const Four*)pools + (wide)blockIdx.x * numbers;
  for (int i = threadIdx.x; i < numbers; i += THREADS) shared[i] = mine[i];
  __syncthreads();
  play_one((const real*)shared, blockIdx.x, blockIdx.x * THREADS + threadIdx.x, PASS_ON);
}

extern "C" __global__ void score(SCORE_ARGUMENTS) {
  wide run = (wide)blockIdx.x * blockDim.x + threadIdx.x;
  if (run < runs) scores[run] = (float)score_run(shifts, count, width, (real)constant, (real)side, seed, first + run);
}

extern "C" __global__ void score_adaptive(SCORE_ANYTIME_ARGUMENTS) {
  wide run = (wide)blockIdx.x * blockDim.x + threadIdx.x;
  if (run < runs)
    scores[run] = (float)score_anytime(rows, steps, moments, rounds, releases, settings, (real)side, seed, first + run, 0);
}
#else
// On a CPU the pool is read where it lies, and replications run one after another.
extern "C" void play(PLAY_ARGUMENTS) {
  int arms = (int)settings[POOL];
  for (int place = 0; place < replications; place++) {
    int group = place / THREADS;
    play_one(pools + (wide)group * arms * ROW, group, place, PASS_ON);
  }
}

extern "C" void score(SCORE_ARGUMENTS) {
  for (wide run = 0; run < runs; run++)
    scores[run] = (float)score_run(shifts, count, width, (real)constant, (real)side, seed, first + run);
}

extern "C" void score_adaptive(SCORE_ANYTIME_ARGUMENTS) {
  for (wide run = 0; run < runs; run++)
    scores[run] = (float)score_anytime(rows, steps, moments, rounds, releases, settings, (real)side, seed, first + run,
                                       injected);
}
#endif

#ifdef PAIR
#include "pair.cu"
#endif
