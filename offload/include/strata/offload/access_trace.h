#pragma once

#include <cstdint>
#include <vector>

#include <strata/chunk/types.h>

namespace strata {

/// All that the planner knows of a training step: which payloads must be resident on the device together, in
/// execution order. `access_trace()` in `session` makes it of a UseTrace; it contains no Programs, tensors or
/// dtypes.
struct AccessTrace {
  struct Access {
    std::vector<PayloadKey> on_device;  ///< resident together while this instruction runs
    double flops = 0;
  };
  std::vector<Access> accesses;        ///< the accesses of one pass of every program, the training pass first
  std::int32_t micro_batches = 1;      ///< passes of the training program per optimizer step
  bool training = true;                ///< whether parameters have moments and accumulated gradients
  bool keeps_gathered = false;         ///< gathered parameters have homes: a step gathers them only once
  std::size_t device_fixed_bytes = 0;  ///< activations and everything else that is always on the device
  std::size_t pinned_fixed_bytes = 0;  ///< inputs, losses, norm partials, activations offloaded to RAM
  std::size_t nvme_fixed_bytes = 0;    ///< activations offloaded to NVMe
};

}  // namespace strata
