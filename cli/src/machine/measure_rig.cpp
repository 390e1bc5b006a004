#include "machine/measure_rig.h"

#include <algorithm>

#include <strata/kernels/elementwise.h>
#include <strata/runtime/units.h>

namespace strata::cli {

const MeasureSizes& MeasureRig::sizes() const {
  static const MeasureSizes cores = {{32, 128, 512, 2048}, 1024,    1024, 512, 8, 64, 1024, 1024,
                                     128 * kMiB,           4 * kMiB};
  static const MeasureSizes gpu = {
      {128, 512, 2048, 8192}, 4096, 8192, 2048, 16, 128, 8192, 8192, 512 * kMiB, 32 * kMiB};
  return is_gpu() ? gpu : cores;
}

Result<std::unique_ptr<MeasureRig>> MeasureRig::create(const MeasureOptions& options) {
  auto rig = std::make_unique<MeasureRig>();
  rig->quick_ = options.quick;
  rig->environment_ = options.environment;
  STRATA_TRY_ASSIGN(rig->share_, process_core_share(rig->environment_));
  STRATA_TRY_ASSIGN(rig->pool_, ThreadPool::create(rig->share_));
  STRATA_TRY_ASSIGN(rig->device_, compute_device(options.backend));
  STRATA_TRY_ASSIGN(rig->backend_, create_backend(rig->device_.kind, {}, *rig->pool_, rig->clock_));
  STRATA_TRY_ASSIGN(rig->compute_, rig->backend_->create_stream(StreamRole::compute));
  return rig;
}

Result<std::unique_ptr<ThreadPool>> MeasureRig::pool_of(int threads) const {
  STRATA_TRY_ASSIGN(const CoreShare share, process_core_share(environment_, {.threads = threads}));
  return ThreadPool::create(share);
}

Result<double> MeasureRig::seconds(const std::function<Status()>& round) {
  const double budget_s = quick_ ? 0.06 : 0.3;
  constexpr std::size_t kLeast = 3, kMost = 1000;
  STRATA_TRY(round());
  std::vector<double> all;
  for (double spent = 0; all.size() < kLeast || (spent < budget_s && all.size() < kMost);
       spent += all.back()) {
    const std::int64_t start = clock_.now_ns();
    STRATA_TRY(round());
    all.push_back(1e-9 * static_cast<double>(clock_.now_ns() - start));
  }
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

Result<double> MeasureRig::computing(const std::function<Status()>& queue) {
  return seconds([&] {
    STRATA_TRY(queue());
    return backend_->synchronize(compute_);
  });
}

Result<TensorView> MeasureRig::tensor(const Shape& shape, DType dtype) {
  STRATA_TRY_ASSIGN(
      Buffer buffer,
      backend_->allocate(MemoryKind::device, static_cast<std::size_t>(shape.n_elems()) * size_of(dtype)));
  const TensorView view{buffer.view().data, shape, dtype};
  buffers_.push_back(std::move(buffer));
  STRATA_TRY(kernels::fill_async(*backend_, compute_, {view, 0.5f}));
  STRATA_TRY(backend_->synchronize(compute_));
  return view;
}

Result<BufferView> MeasureRig::memory(MemoryKind kind, std::size_t bytes) {
  STRATA_TRY_ASSIGN(Buffer buffer, backend_->allocate(kind, bytes));
  buffers_.push_back(std::move(buffer));
  return buffers_.back().view();
}

}  // namespace strata::cli
