// Audits of `anytime-joint`: kernels.cu includes this file where PAIR is defined.
//
// Two streams differ in a context and its reward. Told the same noisy values, both learn the same: whiteners, directions
// and θ follow from releases. So a run has one learner, the sums of the stream that is played, and how far those of the
// other stream are from them. Learners/pair.py says the same in NumPy, with the reasons; what a score has no use for (the
// posterior's covariance) is left out. All of it is in double precision: information grows like t² in some directions.
//   VERSIONS   whiteners that the rounds get to

#ifdef __CUDACC__
#define APART __device__ __noinline__  // long, and called from several places
#else
#define APART static
#endif

#define N FULL
#define SQUARE (N * N)
#define GRAMS PACKED(N)
#define NUMBERS (N + GRAMS)
#define PAIR_ROW (2 * (N + 1))  // of either stream: x⁺ and the reward, clipped
#define PAIR_STEP 8

// Places in a row of `steps`, one for each release.
#define ROUND 0
#define SINCE 1        // rounds since the release before
#define SHOWN_OF_A 2   // q and ρ of the moments
#define KEPT_OF_A 3
#define SHOWN_OF_G 4   // and of the Gram matrix
#define KEPT_OF_G 5
#define TURNS 6        // whether the Gram matrix is shown whole, and another whitener comes
#define FADES 7        // what is left of older information on θ

// Places in `settings`, beside those of kernels.cu.
#define REACH 14
#define FIRST_ETA2 15
#define LATER_ETA2 16
#define KNOWN 17       // whether second moments of contexts are known at the start
#define START 18       // they, or what is assumed

// As in learners/pair.py.
#define UNDECIDED 0
#define DIFFERENT 1
#define ALIKE 2
#define GUESSES 8      // four widths of the prior, and two places for a constant

struct Joint {
  const double* settings;
  double whiteners[VERSIONS][SQUARE], factors[VERSIONS][SQUARE], own_targets[VERSIONS][SQUARE], own_information[VERSIONS];
  double mean[N], weight[VERSIONS], weight_seen[VERSIONS], offset[VERSIONS][N], offset_seen[VERSIONS][N];
  double information[VERSIONS][VERSIONS], towards[VERSIONS][N], against[VERSIONS][VERSIONS][N], noise_variance;
  double gram_mean[SQUARE], gram_target[SQUARE], gram_seen, gram_slope, gram_variance, gram_information;
  double expected[SQUARE], second[SQUARE], prior_second[SQUARE], constant[DIM], estimate[N];
  int version, alike;
};

// ------------------------------------------------------------------ small matrices, whole, row by row

INLINE double most_of(double a, double b) { return a > b ? a : b; }
INLINE double least_of(double a, double b) { return a < b ? a : b; }

INLINE double trace_of(const double* m) {
  double total = 0;
  for (int i = 0; i < N; i++) total += m[i * N + i];
  return total;
}

INLINE void product(const double* a, const double* b, double* out) {
  for (int i = 0; i < N; i++)
    for (int k = 0; k < N; k++) {
      double total = 0;
      for (int j = 0; j < N; j++) total += a[i * N + j] * b[j * N + k];
      out[i * N + k] = total;
    }
}

INLINE void transposed(const double* a, double* out) {
  for (int i = 0; i < N; i++)
    for (int k = 0; k < N; k++) out[i * N + k] = a[k * N + i];
}

// out = p·m·pᵀ
APART void around(const double* p, const double* m, double* out) {
  double half[SQUARE], turned[SQUARE];
  product(p, m, half);
  transposed(p, turned);
  product(half, turned, out);
}

// Lower L with LLᵀ = m; a pivot that rounding made 0 or less is replaced, as in reference/algebra.py.
template <int n> INLINE void lower_factor(const double* m, double* out) {
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++) {
      out[i * n + k] = 0;
      if (k > i) continue;
      double total = m[i * n + k];
      for (int j = 0; j < k; j++) total -= out[i * n + j] * out[k * n + j];
      if (i == k) out[i * n + i] = sqrt(most_of(total, most_of(m[i * n + i] * 1e-16, 1e-300)));
      else out[i * n + k] = total / out[k * n + k];
    }
}

// vector ← L⁻¹·vector, and L⁻ᵀ·vector
template <int n> INLINE void solve_lower(const double* l, double* vector) {
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < i; k++) vector[i] -= l[i * n + k] * vector[k];
    vector[i] /= l[i * n + i];
  }
}

template <int n> INLINE void solve_upper(const double* l, double* vector) {
  for (int i = n - 1; i >= 0; i--) {
    for (int k = i + 1; k < n; k++) vector[i] -= l[k * n + i] * vector[k];
    vector[i] /= l[i * n + i];
  }
}

// m = Σ_k values_k·v_k·v_kᵀ, v_k row k of `vectors`, values in ascending order (Jacobi's rotations).
APART void eigen(const double* m, double* values, double* vectors) {
  double a[SQUARE];
  for (int i = 0; i < SQUARE; i++) a[i] = m[i], vectors[i] = i / N == i % N;
  for (int sweep = 0; sweep < 30; sweep++) {
    double beside = 0, size = 0;
    for (int i = 0; i < N; i++)
      for (int k = 0; k < N; k++) (i == k ? size : beside) += a[i * N + k] * a[i * N + k];
    if (beside <= 1e-32 * size) break;
    for (int p = 0; p < N; p++)
      for (int q = p + 1; q < N; q++) {
        double apart = a[p * N + q];
        if (apart == 0) continue;
        double half = (a[q * N + q] - a[p * N + p]) / (2 * apart), length = sqrt(half * half + 1);
        double slope = 1 / (half + (half < 0 ? -length : length));
        double cosine = 1 / sqrt(slope * slope + 1), sine = slope * cosine;
        for (int k = 0; k < N; k++) {
          double one = a[k * N + p], two = a[k * N + q];
          a[k * N + p] = cosine * one - sine * two;
          a[k * N + q] = sine * one + cosine * two;
        }
        for (int k = 0; k < N; k++) {
          double one = a[p * N + k], two = a[q * N + k];
          a[p * N + k] = cosine * one - sine * two;
          a[q * N + k] = sine * one + cosine * two;
          one = vectors[p * N + k], two = vectors[q * N + k];
          vectors[p * N + k] = cosine * one - sine * two;
          vectors[q * N + k] = sine * one + cosine * two;
        }
      }
  }
  for (int i = 0; i < N; i++) values[i] = a[i * N + i];
  for (int i = 0; i < N; i++)
    for (int k = i + 1; k < N; k++) {
      if (values[k] >= values[i]) continue;
      double value = values[i];
      values[i] = values[k];
      values[k] = value;
      for (int j = 0; j < N; j++) {
        double entry = vectors[i * N + j];
        vectors[i * N + j] = vectors[k * N + j];
        vectors[k * N + j] = entry;
      }
    }
}

INLINE void add_eigen(const double* values, const double* vectors, double* out) {
  for (int i = 0; i < N; i++)
    for (int k = 0; k < N; k++)
      for (int j = 0; j < N; j++) out[i * N + k] += values[j] * vectors[j * N + i] * vectors[j * N + k];
}

// out = a − b less its mean eigenvalue
INLINE void difference(const double* a, const double* b, double* out) {
  for (int i = 0; i < SQUARE; i++) out[i] = a[i] - b[i];
  double middle = trace_of(out) / N;
  for (int i = 0; i < N; i++) out[i * N + i] -= middle;
}

// ------------------------------------------------------------------ what the releases say of Γ

INLINE double eta2_of(const Joint& s, int version) { return s.settings[version == 0 ? FIRST_ETA2 : LATER_ETA2]; }

// s² of a version: the largest (1 + t)/2 + 2η²(1 − t²)
INLINE double move_of(const Joint& s, int version) {
  double most = 2 * eta2_of(s, version), t = least_of(1 / (4 * most), 1);
  return 0.5 * (1 + t) + most * (1 - t * t);
}

INLINE double eta_of(const Joint& s, int version) { return sqrt(eta2_of(s, version) / move_of(s, version)); }
INLINE double length_of(const Joint& s, int version) { return sqrt(version == 0 && s.settings[KNOWN] == 0 ? 2.0 : (double)N); }
INLINE double coefficient_of(const Joint& s, int version) {
  return length_of(s, version) / (2 * s.settings[REACH] * sqrt(move_of(s, version)));
}

// out: of these values at trace 1, none below `least`
INLINE void raised(double* values, const double* vectors, double least, double* out) {
  double total = 0;
  for (int i = 0; i < N; i++) total += values[i] = most_of(values[i], least);
  for (int i = 0; i < N; i++) values[i] /= total;
  for (int i = 0; i < SQUARE; i++) out[i] = 0;
  add_eigen(values, vectors, out);
}

APART void clear_of_noise(const double* noisy, const double* expected, double sd, double* out) {
  double values[N], vectors[SQUARE], moved[SQUARE], edge = 2 * sd * sqrt((double)N), total = 0;
  difference(noisy, expected, moved);
  eigen(moved, values, vectors);
  for (int i = 0; i < N; i++) total += values[i];
  int rest = N;
  while (N - rest < N - 2) {
    double top = values[rest - 1];
    if (top - total / rest <= most_of(1.05 * edge, 0.3 / N)) break;
    total -= top;
    rest--;
  }
  double middle = total / rest, large = 0, spread = 0;
  for (int i = rest; i < N; i++) large += values[i] -= sd * sd * N / most_of(values[i] - middle, edge);
  for (int i = 0; i < rest; i++) spread += (values[i] - middle) * (values[i] - middle);
  double share = most_of(0, 1 - 1.5 * rest * sd * sd / most_of(spread / rest, 1e-300));
  for (int i = 0; i < rest; i++) values[i] = -large / rest + share * (values[i] - middle);
  for (int i = 0; i < SQUARE; i++) moved[i] = expected[i];
  add_eigen(values, vectors, moved);
  eigen(moved, values, vectors);
  double sum = 0;
  for (int i = 0; i < rest; i++) sum += most_of(values[i], 0);
  raised(values, vectors, most_of(least_of(0.5 * sum / rest, edge), least_of(0.01 / N, edge)), out);
}

// Γ of a version, as it looks now.
APART void design_of(const Joint& s, int version, double* out) {
  double pooled[SQUARE], noisy[SQUARE], moved[SQUARE], values[N], vectors[SQUARE], square = 0;
  around(s.whiteners[version], s.second, pooled);
  double whole = trace_of(pooled);
  for (int i = 0; i < SQUARE; i++) out[i] = pooled[i] /= whole;
  if (s.version == 0) return;
  double known = s.own_information[version], eta = eta_of(s, version), sd = sqrt(0.5 / known) / eta;
  for (int i = 0; i < SQUARE; i++) noisy[i] = s.own_targets[version][i] / known / eta;
  difference(noisy, pooled, moved);
  for (int i = 0; i < SQUARE; i++) square += moved[i] * moved[i];
  double share = most_of(0, 1 - sd * sd * ((double)N * (N + 1) - 2) / most_of(square, 1e-300));
  for (int i = 0; i < SQUARE; i++) moved[i] = pooled[i] + share * moved[i];
  eigen(moved, values, vectors);
  raised(values, vectors, most_of(0.5 * sd, 0.002 / N), out);
}

// ------------------------------------------------------------------ θ, under priors that compete

APART void prior_of(const Joint& s, int guess, double* precision, double* pull) {
  double low = s.settings[RANGE_LOW], high = s.settings[RANGE_HIGH], width = high - low, centre = (low + high) / 2;
  double size = trace_of(s.prior_second) - 1, along = 0, factor = 0.25;
  for (int i = 0; i < guess % 4; i++) factor *= 4;
  for (int i = 0; i < DIM; i++) along += s.prior_second[i * N + DIM] * s.prior_second[i * N + DIM];
  double variance = factor / 256 * width * width / most_of(size - along, 1e-3 * size);
  double intercept = 0.01 * width * width, level = 0.25 * width * width;
  for (int i = 0; i < SQUARE; i++) precision[i] = 0;
  for (int i = 0; i < N; i++) pull[i] = 0;
  for (int i = 0; i < DIM; i++) precision[i * N + i] = 1 / variance;
  if (guess < 4) {  // in an intercept
    intercept += level;
    pull[DIM] = centre / intercept;
  } else {  // along contexts
    double square = 0;
    for (int i = 0; i < DIM; i++) square += s.constant[i] * s.constant[i];
    double stiffness = variance + level * square;
    for (int i = 0; i < DIM; i++) {
      for (int k = 0; k < DIM; k++)
        precision[i * N + k] -= level / stiffness * s.constant[i] * s.constant[k] / variance;
      pull[i] = centre * s.constant[i] / stiffness;
    }
  }
  precision[DIM * N + DIM] = 1 / intercept;
}

// Nats against a constant along contexts; a number above 1e300 says that none is looked for.
INLINE double against_along(const Joint& s) {
  if (s.alike == ALIKE) return 0;
  if (s.alike == UNDECIDED) return 2;
  double close = 0;
  for (int i = 0; i < DIM; i++) close += s.prior_second[i * N + DIM] * s.constant[i];
  return close > 0.5 ? 0 : 1e301;
}

APART void average(Joint& s, const double* information, const double* pull, double share) {
  double logs[GUESSES], means[GUESSES][N], best = -1e301, total = 0, along = against_along(s);
  for (int guess = 0; guess < GUESSES; guess++) {
    logs[guess] = -1e301;
    if (guess < 4 ? s.alike == ALIKE : along > 1e300) continue;
    double precision[SQUARE], prior_pull[N], factor[SQUARE], row[N], power = guess % 4 - 1;
    prior_of(s, guess, precision, prior_pull);
    double likely = -0.5 * power * power - (guess < 4 ? 0 : along);
    lower_factor<N>(precision, factor);
    for (int i = 0; i < N; i++) row[i] = prior_pull[i];
    solve_lower<N>(factor, row);
    for (int i = 0; i < N; i++) likely += log(factor[i * N + i]) - 0.5 * row[i] * row[i];
    for (int i = 0; i < SQUARE; i++) precision[i] += share * information[i];
    lower_factor<N>(precision, factor);
    for (int i = 0; i < N; i++) row[i] = share * pull[i] + prior_pull[i];
    solve_lower<N>(factor, row);
    for (int i = 0; i < N; i++) likely += 0.5 * row[i] * row[i] - log(factor[i * N + i]);
    solve_upper<N>(factor, row);
    for (int i = 0; i < N; i++) means[guess][i] = row[i];
    logs[guess] = likely;
    best = most_of(best, likely);
  }
  for (int i = 0; i < N; i++) s.estimate[i] = 0;
  for (int guess = 0; guess < GUESSES; guess++) {
    if (logs[guess] < -1e300) continue;
    double each = exp(logs[guess] - best);
    total += each;
    for (int i = 0; i < N; i++) s.estimate[i] += each * means[guess][i];
  }
  for (int i = 0; i < N; i++) s.estimate[i] /= total;
}

// The linear function of contexts that comes closest to a constant.
INLINE void find_constant(Joint& s) {
  double size = trace_of(s.prior_second) - 1, within[DIM * DIM], factor[DIM * DIM];
  for (int i = 0; i < DIM; i++) {
    for (int k = 0; k < DIM; k++) within[i * DIM + k] = s.prior_second[i * N + k] + (i == k ? 0.5 * size / DIM : 0);
    s.constant[i] = s.prior_second[i * N + DIM];
  }
  lower_factor<DIM>(within, factor);
  solve_lower<DIM>(factor, s.constant);
  solve_upper<DIM>(factor, s.constant);
}

APART void conclude(Joint& s, const double* step) {
  int v = s.version;
  double eta = eta_of(s, v), sd = sqrt(0.5 / s.gram_information) / eta, noisy[SQUARE], design[SQUARE];
  for (int i = 0; i < SQUARE; i++) noisy[i] = s.gram_target[i] / s.gram_information / eta;
  clear_of_noise(noisy, s.expected, sd, design);
  around(s.factors[v], design, s.second);
  double unit = 1 / s.second[DIM * N + DIM], along = 0;
  for (int i = 0; i < SQUARE; i++) s.second[i] *= unit;
  if (s.alike != DIFFERENT)
    for (int i = 0; i < SQUARE; i++) s.prior_second[i] = s.second[i];
  find_constant(s);
  for (int i = 0; i < DIM; i++) along += s.prior_second[i * N + DIM] * s.prior_second[i * N + DIM];
  if (step[TURNS] != 0 && s.alike == UNDECIDED && step[ROUND] > 50 * s.settings[SCALE])
    s.alike = along > 0.5 * (trace_of(s.prior_second) - 1) ? ALIKE : DIFFERENT;
  double matrices[VERSIONS][SQUARE], information[SQUARE], pull[N];  // B of each version
  for (int m = 0; m <= v; m++) {
    double turned[SQUARE];
    design_of(s, m, design);
    transposed(s.factors[m], turned);
    product(design, turned, matrices[m]);
    for (int i = 0; i < SQUARE; i++) matrices[m][i] *= coefficient_of(s, m);
  }
  for (int i = 0; i < SQUARE; i++) information[i] = 0;
  for (int i = 0; i < N; i++) pull[i] = 0;
  for (int m = 0; m <= v; m++) {
    double mixed[SQUARE], towards[N];
    for (int i = 0; i < SQUARE; i++) mixed[i] = 0;
    for (int i = 0; i < N; i++) towards[i] = s.towards[m][i];
    for (int k = 0; k <= v; k++) {
      for (int i = 0; i < SQUARE; i++) mixed[i] += s.information[m][k] * matrices[k][i];
      for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) towards[i] += matrices[k][i * N + j] * s.against[m][k][j];
    }
    for (int i = 0; i < N; i++)
      for (int j = 0; j < N; j++) {
        pull[i] += matrices[m][j * N + i] * towards[j];
        for (int k = 0; k < N; k++) information[i * N + k] += matrices[m][j * N + i] * mixed[j * N + k];
      }
  }
  for (int i = 0; i < N; i++)
    for (int k = 0; k < i; k++)
      information[i * N + k] = information[k * N + i] = (information[i * N + k] + information[k * N + i]) / 2;
  double b = coefficient_of(s, v), own = s.information[v][v], wrong = least_of(sd, 0.3 / N);
  for (int pass = 0; pass < 2; pass++) {
    double square = 0;
    for (int i = 0; i < N; i++) {
      double off = 0;
      for (int j = i; j < N; j++) off += s.factors[v][j * N + i] * (s.estimate[j] - s.against[v][v][j] / own);
      square += off * off;
    }
    average(s, information, pull, 1 / (1 + wrong * wrong * b * b * own * square));
  }
}

// ------------------------------------------------------------------ whiteners, and a release

APART double whiten(Joint& s, int version) {
  double values[N], vectors[SQUARE], wider[SQUARE], ridge = 0;
  eigen(s.second, values, vectors);
  for (int i = 0; i < DIM; i++) ridge += values[i] / DIM;
  for (int i = 0; i < SQUARE; i++) wider[i] = s.second[i] + (i / N == i % N ? ridge : 0);
  lower_factor<N>(wider, s.factors[version]);
  for (int k = 0; k < N; k++) {  // its inverse, column by column
    double column[N];
    for (int i = 0; i < N; i++) column[i] = i == k;
    solve_lower<N>(s.factors[version], column);
    for (int i = 0; i < N; i++) s.whiteners[version][i * N + k] = column[i];
  }
  around(s.whiteners[version], s.second, s.expected);
  double square = trace_of(s.expected);
  for (int i = 0; i < SQUARE; i++) s.expected[i] /= square;
  return square;
}

APART void turn(Joint& s) {
  int old = s.version, now = ++s.version;
  double was[SQUARE], turned[SQUARE], square[SQUARE], carried[SQUARE], sum = 0;
  around(s.whiteners[old], s.second, was);
  double growth = whiten(s, now) / trace_of(was);
  product(s.whiteners[now], s.factors[old], turned);
  transposed(turned, was);
  product(turned, was, square);
  for (int i = 0; i < SQUARE; i++) sum += square[i] * square[i];
  double trace = trace_of(square), louder = (trace * trace + sum) / ((double)N * N + N);
  around(turned, s.gram_target, carried);
  double before = s.gram_information, ratio = eta_of(s, old) / eta_of(s, now) * growth;
  s.gram_information *= ratio * ratio / louder;
  for (int i = 0; i < SQUARE; i++) {
    s.gram_target[i] = carried[i] / (before * eta_of(s, old) * growth) * eta_of(s, now) * s.gram_information;
    s.gram_mean[i] = 0;
  }
  s.gram_seen = s.gram_slope = s.gram_variance = 0;
}

APART void learn_moments(Joint& s, const double* noisy, const double* step) {
  int v = s.version;
  double rounds = step[SINCE], q = step[SHOWN_OF_A], rho = step[KEPT_OF_A], reach = s.settings[REACH];
  double scale = s.settings[SCALE];
  s.weight[v] += rounds;
  for (int i = 0; i < N; i++) s.offset[v][i] += rounds * s.estimate[i];
  s.noise_variance += rounds * (s.settings[REWARD_VARIANCE] / (4 * reach * reach) / N / move_of(s, v));
  double of_noise = q * q * s.noise_variance + scale * scale, gain = q * s.noise_variance / of_noise, surprise[N];
  for (int i = 0; i < N; i++) {
    surprise[i] = noisy[i] - q * s.mean[i];
    s.mean[i] = (s.mean[i] + gain * surprise[i]) * rho;
  }
  for (int m = 0; m <= v; m++) {
    double share = q * (s.weight[m] - s.weight_seen[m]) / of_noise;
    for (int k = 0; k <= v; k++) {
      s.information[m][k] = s.information[m][k] * step[FADES] + share * q * (s.weight[k] - s.weight_seen[k]);
      for (int i = 0; i < N; i++)
        s.against[m][k][i] = s.against[m][k][i] * step[FADES] + share * q * (s.offset[k][i] - s.offset_seen[k][i]);
    }
    for (int i = 0; i < N; i++) s.towards[m][i] = s.towards[m][i] * step[FADES] + share * surprise[i];
  }
  for (int m = 0; m <= v; m++) {
    s.weight_seen[m] = (s.weight_seen[m] + gain * q * (s.weight[m] - s.weight_seen[m])) * rho;
    s.weight[m] *= rho;
    for (int i = 0; i < N; i++) {
      s.offset_seen[m][i] = (s.offset_seen[m][i] + gain * q * (s.offset[m][i] - s.offset_seen[m][i])) * rho;
      s.offset[m][i] *= rho;
    }
  }
  s.noise_variance *= (1 - q * gain) * rho * rho;
}

APART void learn_directions(Joint& s, const double* packed, const double* step) {
  int v = s.version, at = 0;
  double q = step[SHOWN_OF_G], rho = step[KEPT_OF_G], eta = eta_of(s, v), scale = s.settings[SCALE];
  s.gram_seen += step[SINCE];
  s.gram_variance += step[SINCE] * eta * eta / GRAMS;
  double of_noise = q * q * s.gram_variance + scale * scale, gain = q * s.gram_variance / of_noise;
  double factor = q * (s.gram_seen - s.gram_slope);
  for (int i = 0; i < N; i++)
    for (int k = i; k < N; k++) {
      double noisy = packed[at++] / (i == k ? 1 : sqrt(2.0)), surprise = noisy - q * s.gram_mean[i * N + k];
      double more = factor * surprise / of_noise, mean = (s.gram_mean[i * N + k] + gain * surprise) * rho;
      s.gram_mean[i * N + k] = s.gram_mean[k * N + i] = mean;
      s.gram_target[i * N + k] += more;
      s.own_targets[v][i * N + k] += more;
      if (i == k) continue;
      s.gram_target[k * N + i] += more;
      s.own_targets[v][k * N + i] += more;
    }
  s.gram_information += factor * factor / of_noise;
  s.own_information[v] += factor * factor / of_noise;
  s.gram_slope = (s.gram_slope + gain * factor) * rho;
  s.gram_variance *= (1 - q * gain) * rho * rho;
  s.gram_seen *= rho;
}

APART void begin(Joint& s, const double* settings) {
  s = {};
  s.settings = settings;
  for (int i = 0; i < SQUARE; i++) {
    s.whiteners[0][i] = s.factors[0][i] = i / N == i % N;
    s.expected[i] = (i / N == i % N ? 1.0 : 0.0) / N;
    s.second[i] = settings[START + i];
  }
  if (settings[KNOWN] != 0) whiten(s, 0);
  for (int i = 0; i < SQUARE; i++) s.prior_second[i] = s.second[i];
  double precision[SQUARE], factor[SQUARE];
  prior_of(s, 1, precision, s.estimate);  // of width 1, in an intercept
  lower_factor<N>(precision, factor);
  solve_lower<N>(factor, s.estimate);
  solve_upper<N>(factor, s.estimate);
}

// What a round puts into the two sums.
APART void item_of(const Joint& s, const double* x, double reward, double* out) {
  double u[N], square = 0, prediction = 0, window = s.settings[WINDOW];
  for (int i = 0; i < N; i++) {
    u[i] = 0;
    for (int k = 0; k <= i; k++) u[i] += s.whiteners[s.version][i * N + k] * x[k];
    square += u[i] * u[i];
    prediction += x[i] * s.estimate[i];
  }
  double length = sqrt(square), eta = eta_of(s, s.version);
  prediction = least_of(most_of(prediction, s.settings[RANGE_LOW]), s.settings[RANGE_HIGH]);
  double e = (reward - prediction) * least_of(length_of(s, s.version) / length, 2);
  e = least_of(most_of(e, -window), window) / (2 * s.settings[REACH] * sqrt(move_of(s, s.version)));
  int at = N;
  for (int i = 0; i < N; i++) {
    u[i] /= length;
    out[i] = e * u[i];
  }
  for (int i = 0; i < N; i++)
    for (int k = i; k < N; k++) out[at++] = eta * (i == k ? 1 : sqrt(2.0)) * u[i] * u[k];
}

INLINE double score_joint(const double* rows, const double* steps, int rounds, int releases, const double* settings,
                          double side, wide seed, wide run, const double* injected) {
  word low = (word)run, high = (word)(run >> 32), key = (word)seed, other = (word)(seed >> 32);
  Joint s;
  begin(s, settings);
  double sums[NUMBERS] = {}, apart[NUMBERS] = {}, score = 0, scale = settings[SCALE];
  int made = 0;
  ONE_BY_ONE for (int t = 1; t <= rounds && made < releases; t++) {
    const double *before = rows + (t - 1) * PAIR_ROW, *after = before + N + 1, *mine = side < 0 ? before : after;
    double item[NUMBERS], changed[NUMBERS];
    item_of(s, mine, mine[N], item);
    for (int i = 0; i < NUMBERS; i++) sums[i] += item[i];
    bool moves = false;
    for (int i = 0; i <= N; i++) moves |= before[i] != after[i];
    if (moves) {
      item_of(s, side < 0 ? after : before, (side < 0 ? after : before)[N], changed);
      for (int i = 0; i < NUMBERS; i++) apart[i] += side * (item[i] - changed[i]);
    }
    const double* step = steps + made * PAIR_STEP;
    if (t != (int)step[ROUND]) continue;
    double noisy[NUMBERS];
    for (int i = 0; i < NUMBERS; i += 4) {
      Words drawn = philox(low, high, (word)made, (word)i, key, other);
      real four[4];
      normals(drawn.at[0], drawn.at[1], four, four + 1);
      normals(drawn.at[2], drawn.at[3], four + 2, four + 3);
      for (int k = 0; k < 4 && i + k < NUMBERS; k++) {
        int at = i + k;
        double noise = injected ? injected[made * NUMBERS + at] : (double)four[k];
        double q = step[at < N ? SHOWN_OF_A : SHOWN_OF_G], rho = step[at < N ? KEPT_OF_A : KEPT_OF_G];
        double shift = q * apart[at] / scale;
        score += noise * shift + side * 0.5 * shift * shift;
        noisy[at] = q * sums[at] + scale * noise;
        sums[at] *= rho;
        apart[at] *= rho;
      }
    }
    learn_moments(s, noisy, step);
    learn_directions(s, noisy + N, step);
    conclude(s, step);
    if (step[TURNS] != 0) turn(s);
    made++;
  }
  return score;
}

#define SCORE_PAIR_ARGUMENTS                                                                                              \
  const double *rows, const double *steps, int rounds, int releases, const double *settings, int side, wide seed,         \
      wide first, wide runs, float *scores, const double *injected

#ifdef __CUDACC__
extern "C" __global__ void score_pair(SCORE_PAIR_ARGUMENTS) {
  wide run = (wide)blockIdx.x * blockDim.x + threadIdx.x;
  if (run < runs) scores[run] = (float)score_joint(rows, steps, rounds, releases, settings, side, seed, first + run, 0);
}
#else
extern "C" void score_pair(SCORE_PAIR_ARGUMENTS) {
  for (wide run = 0; run < runs; run++)
    scores[run] = (float)score_joint(rows, steps, rounds, releases, settings, side, seed, first + run, injected);
}
#endif
