/* Numbers as Weft's kernels mean them: integers wrap, division by 0 gives 0, minimum and maximum keep NaN, conversions of
   floats to integers truncate and saturate. */
#ifndef WEFT_MATH_H
#define WEFT_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && !defined(WEFT_NO_VECTORS)
#define WEFT_VECTORS
typedef float weft_v4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef float weft_v8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float weft_v16 __attribute__((vector_size(64), aligned(4), may_alias));
#endif

/* Indices. */
static inline int64_t weft_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t weft_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t weft_floor_mod(int64_t a, int64_t b)
{
    if (b == 0) return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline int64_t weft_floor_div(int64_t a, int64_t b) { return b == 0 ? 0 : (a - weft_floor_mod(a, b)) / b; }

/* Integers. */
static inline int64_t weft_imin(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t weft_imax(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t weft_umin(int64_t a, int64_t b) { return (uint64_t)a < (uint64_t)b ? a : b; }
static inline int64_t weft_umax(int64_t a, int64_t b) { return (uint64_t)a > (uint64_t)b ? a : b; }
static inline int64_t weft_int_abs(int64_t a) { return a < 0 ? (int64_t)(0 - (uint64_t)a) : a; }
static inline int64_t weft_int_sign(int64_t a) { return (a > 0) - (a < 0); }
static inline int64_t weft_idiv(int64_t a, int64_t b)
{
    return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}
static inline int64_t weft_irem(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
static inline int64_t weft_imod(int64_t a, int64_t b)
{
    int64_t r = weft_irem(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline int64_t weft_udiv(int64_t a, int64_t b) { return b == 0 ? 0 : (int64_t)((uint64_t)a / (uint64_t)b); }
static inline int64_t weft_urem(int64_t a, int64_t b) { return b == 0 ? 0 : (int64_t)((uint64_t)a % (uint64_t)b); }
static inline int64_t weft_umod(int64_t a, int64_t b) { return weft_urem(a, b); }
static inline int64_t weft_shl(int64_t a, int64_t b) { return b < 0 || b > 63 ? 0 : (int64_t)((uint64_t)a << b); }
static inline int64_t weft_ishr(int64_t a, int64_t b) { return a >> (b < 0 || b > 63 ? 63 : b); }
static inline int64_t weft_ushr(int64_t a, int64_t b) { return b < 0 || b > 63 ? 0 : (int64_t)((uint64_t)a >> b); }
static inline int64_t weft_ipow(int64_t base, int64_t exponent, int large)
{
    if (exponent < 0 && !large) return base == 1 ? 1 : base == -1 ? 1 - 2 * (exponent & 1) : 0;
    uint64_t result = 1, b = (uint64_t)base, e = (uint64_t)exponent;
    for (; e > 0; e >>= 1) {
        if (e & 1) result *= b;
        b *= b;
    }
    return (int64_t)result;
}

/* Floats. */
static inline float weft_fminf(float a, float b) { return a != a || a < b ? a : b; }
static inline float weft_fmaxf(float a, float b) { return a != a || a > b ? a : b; }
static inline double weft_fmin(double a, double b) { return a != a || a < b ? a : b; }
static inline double weft_fmax(double a, double b) { return a != a || a > b ? a : b; }
static inline float weft_signf(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
static inline double weft_sign(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; }
static inline float weft_floor_mod_f(float a, float b)
{
    float r = fmodf(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline double weft_floor_mod_d(double a, double b)
{
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* Conversions to integers. */
#define WEFT_TO(type, low, high) \
    static inline int64_t weft_to_##type(double x) \
    { \
        return x != x ? 0 : x <= (double)(low) ? (int64_t)(low) : x >= (double)(high) ? (int64_t)(high) : (int64_t)x; \
    }
WEFT_TO(int8_t, INT8_MIN, INT8_MAX)
WEFT_TO(uint8_t, 0, UINT8_MAX)
WEFT_TO(int16_t, INT16_MIN, INT16_MAX)
WEFT_TO(uint16_t, 0, UINT16_MAX)
WEFT_TO(int32_t, INT32_MIN, INT32_MAX)
WEFT_TO(uint32_t, 0, UINT32_MAX)
WEFT_TO(int64_t, INT64_MIN, INT64_MAX)
static inline int64_t weft_to_uint64_t(double x)
{
    return !(x > 0) ? 0 : x >= 18446744073709551616.0 ? -1 : (int64_t)(uint64_t)x;
}

/* Halves. */
static inline float weft_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline uint32_t weft_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float weft_from_bf16(uint16_t h) { return weft_of_bits((uint32_t)h << 16); }
static inline uint16_t weft_to_bf16(float x)
{
    uint32_t b = weft_bits(x);
    if (x != x) return (uint16_t)(b >> 16 | 0x40);
    return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
static inline float weft_from_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7fff;
    /* 2^112 moves the exponent; what was beyond half's largest number is infinity or NaN. */
    float x = weft_of_bits(magnitude << 13) * weft_of_bits(0x77800000);
    return weft_of_bits(sign | weft_bits(x) | (magnitude >= 0x7c00 ? 0x7f800000u : 0u));
}
static inline uint16_t weft_to_half(float x)
{
    uint32_t b = weft_bits(x), sign = b >> 16 & 0x8000, magnitude = b & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    /* Subnormal halves are multiples of 2^-24: adding 0.5 rounds to them. */
    if (magnitude < 0x38800000) return (uint16_t)(sign | (weft_bits(weft_of_bits(magnitude) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

#endif
