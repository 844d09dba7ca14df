/* The small operations of a decode step on a CPU, each in one pass over memory. Plain C, no headers of torch.
 *
 * Compiled when first needed (compile.py) and called through ctypes (cpu.py). Matrix products stay with torch. Numbers are
 * bfloat16 or float32 in memory and float32 in between. No sum is shared by two threads, so results do not depend on their
 * number. Every width is a multiple of 16 numbers, that of a head of 32.
 *
 * Axes: L tokens, N rows (trajectories), H query heads, K key/value heads, R = H / K, D head width, P prompt tokens, S allocated
 * tokens of a row, I and O width in and out, r rank of an adapter.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if !defined(__AVX2__) && !defined(__ARM_NEON)
#error "the processor has neither AVX2 nor NEON"
#endif
#ifdef __AVX512F__
#include <immintrin.h>
#endif
#ifdef __AVX512BF16__ /* the processor multiplies pairs of bfloat16 */
#define PAIRS 1
#else
#define PAIRS 0
#endif

#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8 /* wider vectors than the processor's would live in memory */
#endif
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t int_lanes __attribute__((vector_size(4 * LANES)));
typedef uint32_t bit_lanes __attribute__((vector_size(4 * LANES)));
typedef uint16_t half_lanes __attribute__((vector_size(2 * LANES)));
#define INLINE static inline __attribute__((always_inline))

/* -- numbers in memory: `bf16` is known when the caller is compiled, so each function below exists once for either format -- */

INLINE lanes load(const void *base, int64_t at, const int bf16) {
    lanes x;
    if (bf16) {
#ifdef __AVX512F__ /* one instruction where the general form takes several */
        __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)((const uint16_t *)base + at)));
        __m512 whole = _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
        memcpy(&x, &whole, sizeof x);
#else
        half_lanes half;
        memcpy(&half, (const uint16_t *)base + at, sizeof half);
        bit_lanes bits = __builtin_convertvector(half, bit_lanes) << 16;
        memcpy(&x, &bits, sizeof x);
#endif
    } else {
        memcpy(&x, (const float *)base + at, sizeof x);
    }
    return x;
}

INLINE void store(void *base, int64_t at, lanes x, const int bf16) {
    if (bf16) { /* to nearest, ties to even */
        bit_lanes bits;
        memcpy(&bits, &x, sizeof bits);
        bits = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        half_lanes half = __builtin_convertvector(bits, half_lanes);
        memcpy((uint16_t *)base + at, &half, sizeof half);
    } else {
        memcpy((float *)base + at, &x, sizeof x);
    }
}

/* Asks for the next `bytes` ahead of their use. */
INLINE void fetch(const void *from, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)from + i);
}

INLINE const void *shifted(const void *base, int64_t by, const int bf16) {
    return (const char *)base + by * (bf16 ? 2 : 4);
}

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (int_lanes){__VA_ARGS__})
#endif

/* `merge` adds up halves and mixes two vectors: applied like a tree to LANES vectors, whose sums are wanted, it gives one vector
 * with the sum of leaf LEAF[j] in lane j. (LEAF is its own inverse.) */
#if LANES == 16
INLINE lanes merge(lanes a, lanes b) {
    return SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23) +
           SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
static const int LEAF[LANES] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
#else
INLINE lanes merge(lanes a, lanes b) {
    return SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11) + SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
static const int LEAF[LANES] = {0, 4, 2, 6, 1, 5, 3, 7};
#endif

INLINE float sum(lanes x) {
    for (int width = LANES; width > 1; width /= 2) x = merge(x, x); /* every lane of the last one is the sum */
    return x[0];
}

/* a where the mask is set, b elsewhere */
INLINE lanes choose(int_lanes mask, lanes a, lanes b) {
    int_lanes bits_a, bits_b;
    memcpy(&bits_a, &a, sizeof a);
    memcpy(&bits_b, &b, sizeof b);
    bits_a = (mask & bits_a) | (~mask & bits_b);
    memcpy(&a, &bits_a, sizeof a);
    return a;
}

/* e^x to about 1e-7 relative for x <= 88; what is below -87 gives 0. As 2^n e^r, |r| <= ln(2) / 2, with the Taylor series. */
INLINE lanes exponential(lanes x) {
    const lanes zero = {0};
    int_lanes tiny = x < -87.0f;
    x = choose(tiny, zero, choose(x > 88.0f, zero + 88.0f, x));
    lanes scaled = x * 1.44269504f;
    int_lanes n = __builtin_convertvector(scaled + choose(scaled < 0.0f, zero - 0.5f, zero + 0.5f), int_lanes);
    lanes whole = __builtin_convertvector(n, lanes);
    lanes r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f; /* ln 2 in two parts, so that nothing is rounded away */
    lanes e = 1.0f + r * (1.0f + r * (0.5f + r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720))))));
    int_lanes power = (n + 127) << 23;
    lanes two_to_n;
    memcpy(&two_to_n, &power, sizeof power);
    return choose(tiny, zero, e * two_to_n);
}

/* -- normalisation ------------------------------------------------------------------------------------------------------ */

INLINE void rms_norm(const void *x, const void *scale, void *out, int64_t width, float eps, const int bf16) {
    lanes squares = {0};
    for (int64_t i = 0; i < width; i += LANES) {
        lanes v = load(x, i, bf16);
        squares += v * v;
    }
    float inverse = 1.0f / sqrtf(sum(squares) / (float)width + eps);
    for (int64_t i = 0; i < width; i += LANES) store(out, i, load(x, i, bf16) * inverse * load(scale, i, bf16), bf16);
}

INLINE void add_norm_rows(void *x, const void *delta, const void *scale, void *out, int64_t rows, int64_t width, float eps,
                          int threads, const int bf16) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        void *here = (void *)shifted(x, row * width, bf16);
        if (delta) {
            const void *added = shifted(delta, row * width, bf16);
            for (int64_t i = 0; i < width; i += LANES) store(here, i, load(here, i, bf16) + load(added, i, bf16), bf16);
        }
        rms_norm(here, scale, (void *)shifted(out, row * width, bf16), width, eps, bf16);
    }
}

/* x += delta (unless it is null), out = x / sqrt(mean(x^2) + eps) * scale. All [rows, width], scale [width]. */
void ragen_add_norm(void *x, const void *delta, const void *scale, void *out, int64_t rows, int64_t width, float eps, int bf16,
                    int threads) {
    if (bf16) add_norm_rows(x, delta, scale, out, rows, width, eps, threads, 1);
    else add_norm_rows(x, delta, scale, out, rows, width, eps, threads, 0);
}

/* -- gated unit --------------------------------------------------------------------------------------------------------- */

INLINE void silu_mul_rows(const void *gate_up, void *out, int64_t rows, int64_t width, int threads, const int bf16) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < width; i += LANES) {
            lanes gate = load(gate_up, row * 2 * width + i, bf16), up = load(gate_up, (row * 2 + 1) * width + i, bf16);
            store(out, row * width + i, gate / (1.0f + exponential(-gate)) * up, bf16);
        }
}

/* silu(gate) * up: [rows, 2 * width], gate and up side by side, to [rows, width]. */
void ragen_silu_mul(const void *gate_up, void *out, int64_t rows, int64_t width, int bf16, int threads) {
    if (bf16) silu_mul_rows(gate_up, out, rows, width, threads, 1);
    else silu_mul_rows(gate_up, out, rows, width, threads, 0);
}

/* -- rotary positions --------------------------------------------------------------------------------------------------- */

INLINE void rotate_heads(void *qkv, const void *cos, const void *sin, const void *q_scale, const void *k_scale, int64_t L,
                         int64_t H, int64_t K, int64_t D, float eps, int threads, const int bf16) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t token = 0; token < L; token++)
        for (int64_t head = 0; head < H + K; head++) {
            void *x = (void *)shifted(qkv, (token * (H + 2 * K) + head) * D, bf16);
            const void *scale = head < H ? q_scale : k_scale;
            if (scale) rms_norm(x, scale, x, D, eps, bf16);
            if (!cos) continue;
            for (int64_t i = 0; i < D / 2; i += LANES) {
                lanes a = load(x, i, bf16), b = load(x, D / 2 + i, bf16);
                int64_t at = token * D + i;
                store(x, i, a * load(cos, at, bf16) - b * load(sin, at, bf16), bf16);
                store(x, D / 2 + i, b * load(cos, at + D / 2, bf16) + a * load(sin, at + D / 2, bf16), bf16);
            }
        }
}

/* In place on qkv [L, H + 2 K, D]: normalise queries and keys by head (where there are scales [D]), then rotate them by their
 * positions (where there are cos and sin [L, D]). Values stay as they are. */
void ragen_rotate(void *qkv, const void *cos, const void *sin, const void *q_scale, const void *k_scale, int64_t L, int64_t H,
                  int64_t K, int64_t D, float eps, int bf16, int threads) {
    if (bf16) rotate_heads(qkv, cos, sin, q_scale, k_scale, L, H, K, D, eps, threads, 1);
    else rotate_heads(qkv, cos, sin, q_scale, k_scale, L, H, K, D, eps, threads, 0);
}

/* -- attention of one new token a row ------------------------------------------------------------------------------------ */

enum { MAX_QUERIES = 8, MAX_WIDTH = 256 }; /* that share a head's keys, and numbers in a head */

/* Adds to dot[r][j], for four keys that begin at `at`, what is left to sum up of their products with R queries. Queries are
 * stored as the keys are where the processor multiplies those, and as float32 elsewhere. */
INLINE void dots(const void *q, const int64_t R, const void *keys, const int64_t *at, const int64_t D, lanes dot[][4],
                 const int bf16) {
#if PAIRS
    if (bf16) {
        for (int64_t i = 0; i < D; i += 2 * LANES)
            for (int j = 0; j < 4; j++) {
                __m512bh key = (__m512bh)_mm512_loadu_si512((const uint16_t *)keys + at[j] + i);
                for (int64_t r = 0; r < R; r++) {
                    __m512bh query = (__m512bh)_mm512_loadu_si512((const uint16_t *)q + r * D + i);
                    dot[r][j] = (lanes)_mm512_dpbf16_ps((__m512)dot[r][j], query, key);
                }
            }
        return;
    }
#endif
    for (int64_t i = 0; i < D; i += LANES)
        for (int j = 0; j < 4; j++) {
            lanes key = load(keys, at[j] + i, bf16);
            for (int64_t r = 0; r < R; r++) dot[r][j] += load(q, r * D + i, 0) * key;
        }
}

/* Scores of R queries with `count` keys that lie one below the other, into R rows of `scores` of length `stride`, which have
 * room for a whole number of lanes. LANES keys at a time: their sums are taken together. */
INLINE void score(const void *q, const int64_t R, const void *keys, int64_t count, const int64_t D, float *scores,
                  int64_t stride, const int bf16) {
    for (int64_t s = 0; s < count; s += LANES) {
        fetch(shifted(keys, (s + LANES) * D, bf16), (count - s - LANES < LANES ? count - s - LANES : LANES) * D * (bf16 ? 2 : 4));
        lanes four[MAX_QUERIES][LANES / 4];
#pragma GCC unroll 4
        for (int part = 0; part < LANES / 4; part++) {
            lanes dot[MAX_QUERIES][4];
            for (int64_t r = 0; r < R; r++)
                for (int j = 0; j < 4; j++) dot[r][j] = (lanes){0};
            int64_t at[4];
            for (int j = 0; j < 4; j++) {
                int64_t key = s + LEAF[4 * part + j];
                at[j] = (key < count ? key : count - 1) * D;
            }
            dots(q, R, keys, at, D, dot, bf16);
            for (int64_t r = 0; r < R; r++)
                four[r][part] = merge(merge(dot[r][0], dot[r][1]), merge(dot[r][2], dot[r][3]));
        }
        for (int64_t r = 0; r < R; r++) {
            lanes sums = merge(four[r][0], four[r][1]);
            if (LANES == 16) sums = merge(sums, merge(four[r][LANES / 8], four[r][LANES / 4 - 1]));
            store(scores, r * stride + s, sums, 0);
        }
    }
}

/* Adds `count` values, weighted, to R rows of `out` [R, D]. */
INLINE void mix(const float *weights, int64_t stride, const int64_t R, const void *values, int64_t count, const int64_t D,
                float *out, const int bf16) {
    lanes total[MAX_QUERIES][MAX_WIDTH / LANES];
    for (int64_t r = 0; r < R; r++)
        for (int64_t i = 0; i < D / LANES; i++) total[r][i] = load(out, r * D + i * LANES, 0);
    for (int64_t s = 0; s < count; s++)
        for (int64_t i = 0; i < D / LANES; i++) {
            lanes value = load(values, s * D + i * LANES, bf16);
            for (int64_t r = 0; r < R; r++) total[r][i] += weights[r * stride + s] * value;
        }
    for (int64_t r = 0; r < R; r++)
        for (int64_t i = 0; i < D / LANES; i++) store(out, r * D + i * LANES, total[r][i], 0);
}

/* Softmax of scores[0..count), in place; there is room for a whole number of lanes. */
INLINE void softmax(float *scores, int64_t count) {
    int64_t whole = (count + LANES - 1) / LANES * LANES;
    for (int64_t s = count; s < whole; s++) scores[s] = -INFINITY;
    lanes peak = load(scores, 0, 0), total = {0};
    for (int64_t s = LANES; s < whole; s += LANES) {
        lanes x = load(scores, s, 0);
        peak = choose(x > peak, x, peak);
    }
    float most = peak[0];
    for (int i = 1; i < LANES; i++) most = peak[i] > most ? peak[i] : most;
    for (int64_t s = 0; s < whole; s += LANES) {
        lanes e = exponential(load(scores, s, 0) - most);
        total += e;
        store(scores, s, e, 0);
    }
    float inverse = 1.0f / sum(total);
    for (int64_t s = 0; s < whole; s += LANES) store(scores, s, load(scores, s, 0) * inverse, 0);
}

typedef struct {
    const void *q;                             /* [N, H, D], rows `q_stride` numbers apart */
    const void *prompt_keys, *prompt_values;   /* [G, K, P, D] */
    const void *keys, *values;                 /* [N, K, S, D] */
    const int64_t *group, *prompt_length, *length; /* [N]: its prompt, tokens of it, tokens of its own with the new one */
    void *out;                                 /* [N, H, D] */
    int64_t N, H, K, D, P, S, q_stride, window; /* window: tokens a query may look back, itself included; 0: all */
    float scale;
} Attention;

INLINE void attend_row(const Attention *a, int64_t n, int64_t k, float *scratch, int64_t stride, const int64_t R,
                       const int64_t D, const int bf16) {
    float *q = scratch, *out = q + R * D, *scores = out + R * D;
    for (int64_t i = 0; i < R * D; i += LANES) {
        store(q, i, load(a->q, n * a->q_stride + k * R * D + i, bf16) * a->scale, bf16 && PAIRS);
        store(out, i, (lanes){0}, 0);
    }
    int64_t prompt = a->prompt_length[n], own = a->length[n];
    int64_t hidden = a->window && prompt + own > a->window ? prompt + own - a->window : 0; /* first tokens out of sight */
    int64_t from_prompt = hidden < prompt ? hidden : prompt, from_own = hidden - from_prompt;
    prompt -= from_prompt;
    own -= from_own;
    int64_t at_prompt = ((a->group[n] * a->K + k) * a->P + from_prompt) * D, at_own = ((n * a->K + k) * a->S + from_own) * D;
    score(q, R, shifted(a->prompt_keys, at_prompt, bf16), prompt, D, scores, stride, bf16);
    score(q, R, shifted(a->keys, at_own, bf16), own, D, scores + prompt, stride, bf16);
    for (int64_t r = 0; r < R; r++) softmax(scores + r * stride, prompt + own);
    mix(scores, stride, R, shifted(a->prompt_values, at_prompt, bf16), prompt, D, out, bf16);
    mix(scores + prompt, stride, R, shifted(a->values, at_own, bf16), own, D, out, bf16);
    void *target = (void *)shifted(a->out, (n * a->H + k * R) * D, bf16);
    for (int64_t i = 0; i < R * D; i += LANES) store(target, i, load(out, i, 0), bf16);
}

/* The usual shapes are compiled with R and D known, so that sums stay in registers. */
#define KNOWN(r, d) if (R == r && D == d) { attend_row(a, n, k, scratch, stride, r, d, bf16); continue; }

INLINE int attend_rows(const Attention *a, int threads, const int bf16) {
    int64_t R = a->H / a->K, D = a->D, most = 0;
    int failed = 0;
    for (int64_t n = 0; n < a->N; n++)
        if (a->prompt_length[n] + a->length[n] > most) most = a->prompt_length[n] + a->length[n];
    int64_t stride = most + 2 * LANES; /* either part of the scores is written in whole lanes */
#pragma omp parallel num_threads(threads)
    {
        float *scratch = malloc(sizeof(float) * (2 * R * D + R * stride));
        if (!scratch) {
#pragma omp atomic write
            failed = 1;
        }
        /* rows of a prompt follow one another, so that its keys stay in the cache */
#pragma omp for schedule(dynamic, 2)
        for (int64_t task = 0; task < a->N * a->K; task++) {
            int64_t n = task % a->N, k = task / a->N;
            if (!scratch) continue;
            KNOWN(1, 64) KNOWN(2, 64) KNOWN(3, 64) KNOWN(4, 64) KNOWN(7, 64) KNOWN(2, 128) KNOWN(4, 128)
            attend_row(a, n, k, scratch, stride, R, D, bf16);
        }
        free(scratch);
    }
    return failed;
}

/* One softmax over a shared prompt and a row's own tokens. Returns 0, or 1 if there was no memory for the scores. */
int ragen_attend(const Attention *a, int bf16, int threads) {
    return bf16 ? attend_rows(a, threads, 1) : attend_rows(a, threads, 0);
}

/* -- what new tokens leave in the cache ---------------------------------------------------------------------------------- */

/* Keys and values of flat tokens: token l goes to position at[l] of row row[l] of keys and values [rows, K, S, D].
 * k and v are [L, K, D], tokens `stride` numbers apart, `size` bytes a number. */
void ragen_keep(const char *k, const char *v, int64_t stride, char *keys, char *values, const int64_t *row, const int64_t *at,
                int64_t L, int64_t K, int64_t S, int64_t D, int size) {
    for (int64_t l = 0; l < L; l++)
        for (int64_t head = 0; head < K; head++) {
            int64_t from = (l * stride + head * D) * size, to = ((row[l] * K + head) * S + at[l]) * D * size;
            memcpy(keys + to, k + from, (size_t)(D * size));
            memcpy(values + to, v + from, (size_t)(D * size));
        }
}

/* -- low-rank adapters --------------------------------------------------------------------------------------------------- */

INLINE void adapt_rows(const void *x, const void *down, const void *up, void *out, const int64_t *begins, const int64_t *ends, int64_t blocks,
                       int64_t L, int64_t I, int64_t O, int64_t r, int threads, const int bf16) {
    enum { TOKENS = 4 };
    int64_t rank = blocks * r;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t first = 0; first < L; first += TOKENS) {
        int64_t count = L - first < TOKENS ? L - first : TOKENS;
        float thin[TOKENS][rank];
        for (int64_t j = 0; j < rank; j++) {
            lanes dot[TOKENS] = {{0}};
            for (int64_t i = 0; i < I; i += LANES) {
                lanes a = load(down, j * I + i, bf16);
                for (int64_t t = 0; t < TOKENS; t++)
                    dot[t] += a * load(x, (first + (t < count ? t : 0)) * I + i, bf16);
            }
            for (int64_t t = 0; t < TOKENS; t++) thin[t][j] = sum(dot[t]);
        }
        for (int64_t block = 0; block < blocks; block++)
            for (int64_t o = begins[block]; o < ends[block]; o += LANES) {
                lanes total[TOKENS] = {{0}};
                for (int64_t j = 0; j < r; j++) {
                    lanes b = load(up, (block * r + j) * O + o, bf16);
                    for (int64_t t = 0; t < TOKENS; t++) total[t] += thin[t][block * r + j] * b;
                }
                for (int64_t t = 0; t < count; t++) {
                    int64_t at = (first + t) * O + o;
                    store(out, at, load(out, at, bf16) + total[t], bf16);
                }
            }
    }
}

/* out [L, O] += x [L, I] A^T B with A [blocks * r, I] and B [blocks * r, O]; block b of B is 0 but for the columns
 * begins[b] <= o < ends[b]. */
void ragen_adapt(const void *x, const void *down, const void *up, void *out, const int64_t *begins, const int64_t *ends, int64_t blocks, int64_t L,
                 int64_t I, int64_t O, int64_t r, int bf16, int threads) {
    if (bf16) adapt_rows(x, down, up, out, begins, ends, blocks, L, I, O, r, threads, 1);
    else adapt_rows(x, down, up, out, begins, ends, blocks, L, I, O, r, threads, 0);
}
