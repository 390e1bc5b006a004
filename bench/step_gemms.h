#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <strata/graph/program.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata::bench {

/// The GEMMs of a training step of a program on the host, with nothing between them, a lower bound of any
/// step's time: y = x w^T, dx = dy w and dw = dy^T x of each linear layer. Weights and their gradients have
/// their own memory, as in a step; activations of one size share a buffer, so that no step has better
/// locality.
class StepGemms {
 public:
  /// `forward`: a program without its backward. Throws std::runtime_error if memory is exhausted.
  StepGemms(const Program& forward, Backend& backend);
  void run(ThreadPool& pool) const;
  /// Multiplications and additions of run().
  double flops() const noexcept { return flops_; }

 private:
  struct Layer {
    TensorView x, w, y, dx, dw;
  };
  TensorView buffer_view(Backend& backend, const ValueInfo& value, const std::string& role);

  std::map<std::pair<std::string, std::int64_t>, Buffer> buffers_;
  std::vector<Layer> layers_;
  double flops_ = 0;
};

}  // namespace strata::bench
