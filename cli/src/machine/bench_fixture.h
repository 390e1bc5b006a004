#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <strata/runtime/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/core_share.h>
#include <strata/runtime/tensor_view.h>
#include <strata/runtime/thread_pool.h>

#include "machine/compute_device.h"
#include "machine/measure.h"

namespace strata::cli {

/// How much work tells what a device does, and not what it costs to begin.
struct MeasureSizes {
  std::vector<double> gemm_sizes;  ///< smallest sides
  std::int64_t gemm_other_size;
  std::int64_t tokens, seq, heads, head_dim;  ///< of attention
  std::int64_t rows, columns;                 ///< of norms and activations
  std::size_t link_bytes, link_piece;
};

/// The device that is measured, and memory on it.
class BenchFixture {
 public:
  static Result<std::unique_ptr<BenchFixture>> create(const MeasureOptions& options);

  const ComputeDevice& device() const noexcept { return device_; }
  bool is_gpu() const noexcept { return device_.kind == DeviceKind::cuda; }
  const MeasureSizes& sizes() const;
  const CoreShare& share() const noexcept { return share_; }
  Backend& backend() noexcept { return *backend_; }
  ThreadPool& pool() noexcept { return *pool_; }
  /// As a run with cpu.threads of so many would have.
  Result<std::unique_ptr<ThreadPool>> create_pool(int threads) const;
  Stream& compute() noexcept { return compute_; }

  /// Median seconds of `round`, over at least three and for a while, after one that warms up.
  Result<double> seconds(const std::function<Status()>& round);
  /// Seconds of work on the compute stream.
  Result<double> stream_seconds(const std::function<Status()>& queue);

  /// Of device memory, with values that are no denormals.
  Result<TensorView> tensor(const Shape& shape, DType dtype);
  Result<BufferView> memory(MemoryKind kind, std::size_t bytes);
  void release_buffers() { buffers_.clear(); }

 private:
  bool quick_ = false;
  std::vector<std::string> environment_;
  CoreShare share_;
  ComputeDevice device_;
  SteadyClock clock_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
  Stream compute_;
  std::vector<Buffer> buffers_;
};

}  // namespace strata::cli
