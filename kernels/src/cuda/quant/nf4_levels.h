#pragma once

namespace strata::kernels::detail {

/// The levels of NF4: quantiles of the normal distribution (Dettmers et al. 2023, arXiv 2305.14314).
inline constexpr float kNf4Levels[16] = {-1.0f,
                                         -0.6961928009986877f,
                                         -0.5250730514526367f,
                                         -0.39491748809814453f,
                                         -0.28444138169288635f,
                                         -0.18477343022823334f,
                                         -0.09105003625154495f,
                                         0.0f,
                                         0.07958029955625534f,
                                         0.16093020141124725f,
                                         0.24611230194568634f,
                                         0.33791524171829224f,
                                         0.44070982933044434f,
                                         0.5626170039176941f,
                                         0.7229568362236023f,
                                         1.0f};
/// The midpoints between levels, rounded to f32 as bitsandbytes has them.
struct Nf4Middles {
  float of[15];
};
constexpr Nf4Middles nf4_middles() {
  Nf4Middles middles{};
  for (int i = 0; i < 15; ++i) middles.of[i] = (kNf4Levels[i] + kNf4Levels[i + 1]) / 2;
  return middles;
}
inline constexpr Nf4Middles kNf4Middles = nf4_middles();

}  // namespace strata::kernels::detail
