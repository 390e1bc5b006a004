#pragma once

#include <cstdint>
#include <vector>

#include <strata/chunk/types.h>

namespace strata {

/// Everything the planner knows of a training step: which payloads must be on the device together, in order.
/// The lowering makes one; nothing of Programs, tensors or dtypes is left in it.
struct AccessTrace {
  struct Access {
    std::vector<PayloadKey> on_device;  ///< resident together while this step runs
    double flops = 0;
  };
  std::vector<Access> accesses;        ///< of the largest program: one micro-batch, forward and backward
  std::int32_t micro_batches = 1;      ///< of an optimizer step
  bool training = true;                ///< whether parameters have moments and gradient sums
  std::size_t device_fixed_bytes = 0;  ///< activations and whatever else lives on the device throughout
  std::size_t pinned_fixed_bytes = 0;  ///< inputs, losses, norm partials, activations that are away
  std::size_t nvme_fixed_bytes = 0;    ///< activations that are farther away
};

}  // namespace strata
