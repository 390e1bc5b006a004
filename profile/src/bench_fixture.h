#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <strata/profile/compute_device.h>
#include <strata/profile/measure_options.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/tensor_view.h>
#include <strata/runtime/threads/core_share.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata {

/// Sizes large enough that throughput dominates, not launch overhead.
struct MeasureSizes {
  std::vector<double> gemm_sizes;             ///< smallest dimension of the GEMMs
  std::int64_t gemm_other_size;               ///< minimum of their other dimensions
  std::int64_t tokens, seq, heads, head_dim;  ///< the sizes of attention
  std::int64_t rows, columns;                 ///< the sizes of norms and activations
  std::size_t link_bytes, link_piece;         ///< bytes per round over the link, and per copy
};

/// The device being measured, and buffers in its memory.
class BenchFixture {
 public:
  static Result<std::unique_ptr<BenchFixture>> create(const MeasureOptions& options);

  const ComputeDevice& device() const noexcept { return device_; }
  bool is_gpu() const noexcept { return device_.kind == DeviceKind::cuda; }
  const MeasureSizes& sizes() const;
  const CoreShare& share() const noexcept { return share_; }
  Backend& backend() noexcept { return *backend_; }
  ThreadPool& pool() noexcept { return *pool_; }
  /// The thread pool of a run with cpu.threads=`threads`.
  Result<std::unique_ptr<ThreadPool>> create_pool(int threads) const;
  Stream& compute() noexcept { return compute_; }

  double now_s() const { return 1e-9 * static_cast<double>(clock_.now_ns()); }
  /// Median seconds of `round` after one warm-up round: at least 3 rounds, for 0.3 s (0.06 s if quick).
  Result<double> seconds(const std::function<Status()>& round);
  /// Median seconds of the work that `queue` queues on the compute stream. On a GPU it is queued as often as
  /// takes a millisecond, so that the time of a launch and of a wait by the host does not count.
  Result<double> stream_seconds(const std::function<Status()>& queue);

  /// A tensor in device memory with random values around 0, since equal ones draw less power and GPUs then
  /// compute faster than in a run.
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

}  // namespace strata
