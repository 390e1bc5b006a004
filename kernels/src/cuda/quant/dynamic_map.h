#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>

// The 8-bit dynamic data type (Dettmers 2015, arXiv 1511.04561; Dettmers et al. 2022, arXiv 2110.02861), as
// bitsandbytes maps it: 127 positive values over seven decades, which are the midpoints of 1, 2, 4 ... 64
// equal parts of the decades, their negatives, zero, and one.
namespace strata::kernels::detail {

inline constexpr float kDynamicLevels[129] = {  // zero, the positive values, one
    0.0f,           5.5000004e-07f, 3.2500002e-06f,
    7.75e-06f,      2.1249998e-05f, 4.375e-05f,
    6.625e-05f,     8.875e-05f,     0.00015625001f,
    0.00026875004f, 0.00038125002f, 0.00049375003f,
    0.0006062501f,  0.00071875006f, 0.00083125f,
    0.0009437501f,  0.0012812499f,  0.00184375f,
    0.00240625f,    0.00296875f,    0.0035312497f,
    0.00409375f,    0.0046562497f,  0.0052187503f,
    0.00578125f,    0.00634375f,    0.00690625f,
    0.00746875f,    0.00803125f,    0.00859375f,
    0.009156249f,   0.00971875f,    0.01140625f,
    0.01421875f,    0.01703125f,    0.019843752f,
    0.02265625f,    0.02546875f,    0.028281251f,
    0.03109375f,    0.03390625f,    0.036718752f,
    0.03953125f,    0.042343747f,   0.04515625f,
    0.04796875f,    0.05078125f,    0.05359375f,
    0.05640625f,    0.059218753f,   0.06203125f,
    0.06484375f,    0.067656256f,   0.070468746f,
    0.07328125f,    0.07609375f,    0.07890625f,
    0.08171876f,    0.08453125f,    0.08734375f,
    0.09015625f,    0.092968754f,   0.09578126f,
    0.09859375f,    0.107031256f,   0.12109375f,
    0.13515624f,    0.14921875f,    0.16328125f,
    0.17734376f,    0.19140625f,    0.20546874f,
    0.21953125f,    0.23359375f,    0.24765624f,
    0.26171875f,    0.27578127f,    0.28984374f,
    0.30390626f,    0.31796873f,    0.33203125f,
    0.34609374f,    0.36015624f,    0.37421876f,
    0.38828123f,    0.40234375f,    0.41640624f,
    0.43046874f,    0.44453126f,    0.45859373f,
    0.47265625f,    0.4867187f,     0.50078124f,
    0.5148437f,     0.5289062f,     0.54296875f,
    0.5570313f,     0.5710938f,     0.58515626f,
    0.5992187f,     0.61328125f,    0.6273438f,
    0.6414063f,     0.65546876f,    0.6695312f,
    0.68359375f,    0.6976563f,     0.7117188f,
    0.72578126f,    0.7398437f,     0.75390625f,
    0.7679688f,     0.78203124f,    0.79609376f,
    0.8101562f,     0.82421875f,    0.8382813f,
    0.85234374f,    0.86640626f,    0.8804687f,
    0.89453125f,    0.9085938f,     0.92265624f,
    0.93671876f,    0.9507812f,     0.96484375f,
    0.9789063f,     0.99296874f,    1.0f};

/// The value of each code, in increasing order.
struct DynamicMap {
  float of[256];
};
constexpr DynamicMap dynamic_map() {
  DynamicMap map{};
  for (int i = 0; i < 129; ++i) map.of[127 + i] = kDynamicLevels[i];
  for (int i = 1; i <= 127; ++i) map.of[127 - i] = -kDynamicLevels[i];
  return map;
}

/// The code of the value nearest to x; the smaller one of two that are equally near.
inline std::uint8_t quantize_dynamic(const DynamicMap& map, float x) {
  int low = 0, high = 255;  // the code is in between
  while (low < high) {
    const int middle = (low + high) / 2;
    if (x > (map.of[middle] + map.of[middle + 1]) / 2)
      low = middle + 1;
    else
      high = middle;
  }
  return static_cast<std::uint8_t>(low);
}

}  // namespace strata::kernels::detail
