/* How fast one core can play LinUCB when everything is known at compile time: the yardstick of engine_floor.py.

   One ridge regression shared by all arms, Sherman-Morrison, double precision, sizes D and N fixed, rows of the inverse
   padded to whole vectors. B candidates at a time share every load of a row, and keep their images in registers, so that
   the image of the arm played needs no second product. No ties, no clipping, no record, no refresh: what a bandit that
   anyone can use does beside this is what the ratio measures. Vectors are GCC's own, as wide as the machine's.

   gcc -O3 -march=native -ffast-math -DD=10 -DN=10 -DB=2 -shared -fPIC floor.c -o floor.so -lm */
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVX512F__
#define LANES 8
#else
#define LANES 4
#endif
#define VECTORS ((D + LANES - 1) / LANES)
#define WIDTH (VECTORS * LANES)
#ifndef B
#define B 1
#endif

#define UNROLL _Pragma("GCC unroll 32")

typedef double lanes __attribute__((vector_size(8 * LANES)));
typedef double loose __attribute__((vector_size(8 * LANES), aligned(8)));

typedef struct {
    double inverse[D][WIDTH], theta[WIDTH], image[WIDTH];
} __attribute__((aligned(64))) model;

static inline double sum(lanes v) {
    double total = 0;
    for (int i = 0; i < LANES; i++) total += v[i];
    return total;
}

/* The vectors of x, with zeros behind its end. */
static inline lanes part(const double *x, int k) {
    if ((k + 1) * LANES <= D) return *(const loose *)(x + k * LANES);
    lanes v = {0};
    for (int i = k * LANES; i < D; i++) v[i - k * LANES] = x[i];
    return v;
}

static inline int choose(model *m, const double *const *x, double alpha, double *mean, double *spread) {
    double best = -INFINITY;
    int chosen = 0;
    for (int first = 0; first < N; first += B) {
        lanes image[B][VECTORS] = {0};
        for (int i = 0; i < D; i++)
            UNROLL for (int k = 0; k < VECTORS; k++) {
                lanes row = *(lanes *)&m->inverse[i][k * LANES];
                UNROLL for (int b = 0; b < B; b++) image[b][k] += x[first + b][i] * row;
            }
        UNROLL for (int b = 0; b < B; b++) {
            lanes square = {0}, linear = {0};
            UNROLL for (int k = 0; k < VECTORS; k++) {
                lanes own = part(x[first + b], k);
                square += image[b][k] * own;
                linear += *(lanes *)&m->theta[k * LANES] * own;
            }
            double q = sum(square), mu = sum(linear), score = mu + alpha * sqrt(q);
            if (score > best) {
                best = score, chosen = first + b, *mean = mu, *spread = q;
                UNROLL for (int k = 0; k < VECTORS; k++) *(lanes *)&m->image[k * LANES] = image[b][k];
            }
        }
    }
    return chosen;
}

static inline void learn(model *m, double mean, double spread, double reward) {
    double factor = 1 / (1 + spread), gain = (reward - mean) * factor;
    lanes image[VECTORS];
    UNROLL for (int k = 0; k < VECTORS; k++) image[k] = *(lanes *)&m->image[k * LANES];
    for (int i = 0; i < D; i++) {
        double scaled = m->image[i] * factor;
        UNROLL for (int k = 0; k < VECTORS; k++) *(lanes *)&m->inverse[i][k * LANES] -= scaled * image[k];
    }
    for (int k = 0; k < VECTORS; k++) *(lanes *)&m->theta[k * LANES] += gain * image[k];
}

/* Arm j of round t is pool[shown[t, j]] and pays means[shown[t, j]] + noise[t]. */
void play(int64_t rounds, const double *pool, const int64_t *shown, const double *means, const double *noise, double alpha,
          int64_t *chosen) {
    model m;
    memset(&m, 0, sizeof m);
    for (int i = 0; i < D; i++) m.inverse[i][i] = 1;
    for (int64_t t = 0; t < rounds; t++) {
        const int64_t *slate = shown + t * N;
        const double *x[N];
        double mean = 0, spread = 0;
        for (int j = 0; j < N; j++) x[j] = pool + slate[j] * D;
        int arm = choose(&m, x, alpha, &mean, &spread);
        learn(&m, mean, spread, means[slate[arm]] + noise[t]);
        chosen[t] = arm;
    }
}
