#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>

// Losses that are weighted sums over items (tokens or pairs), with their statistics. A `Loss` has
//   kSums, kMaxima: how many sums and maxima there are; the first sum is the loss, the others are statistics
//   add(i, sums): adds item i to the sums, and updates the maxima, which follow them and begin with 0
//   store_gradient(i, scale, out): writes the gradient of item i of the loss times `scale`
// The host and CUDA run the same functions.
namespace strata::kernels::detail {

template <class Loss>
struct LossCall {
  Loss loss;
  std::int64_t items;
  const float* divisor;
  float* value;
  float* stats;
};
template <class Loss>
struct LossGradientCall {
  Loss loss;
  std::int64_t items;
  const float* divisor;
  float* gradient;
};

/// Lane j adds items j, j + 512, ... in f64; then the lanes are added as a tree.
inline constexpr int kLossLanes = 512;
template <class Loss>
inline constexpr int kLossResults = Loss::kSums + Loss::kMaxima;

/// `lanes` has kLossResults arrays, shared by the threads of the block.
template <class Block, class Loss>
STRATA_DEVICE_INLINE void reduce_loss(const Block& block, const LossCall<Loss>& call,
                                      double (*lanes)[kLossLanes]) {
  constexpr int kResults = kLossResults<Loss>;
  block.run_and_sync([&](int lane) {
    double own[kResults] = {};
    for (std::int64_t i = lane; i < call.items; i += kLossLanes) call.loss.add(i, own);
    for (int k = 0; k < kResults; ++k) lanes[k][lane] = own[k];
  });
  for (int width = kLossLanes / 2; width > 0; width /= 2)
    block.run_and_sync([&](int lane) {
      for (int k = 0; k < kResults && lane < width; ++k) {
        const double a = lanes[k][lane], b = lanes[k][lane + width];
        lanes[k][lane] = k < Loss::kSums ? a + b : b > a ? b : a;
      }
    });
  block.run_and_sync([&](int lane) {
    if (lane > 0) return;
    const auto divisor = static_cast<double>(*call.divisor);
    *call.value = divisor > 0 ? static_cast<float>(lanes[0][0] / divisor) : 0.0f;
    for (int k = 1; k < kResults; ++k) call.stats[k - 1] = static_cast<float>(lanes[k][0]);
  });
}

template <class Loss>
STRATA_HD void store_loss_gradient(const LossGradientCall<Loss>& call, std::int64_t i) {
  const auto divisor = static_cast<double>(*call.divisor);
  call.loss.store_gradient(i, static_cast<float>(1.0 / (divisor > 0 ? divisor : 1.0)), call.gradient);
}

}  // namespace strata::kernels::detail
