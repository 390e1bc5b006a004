#include "bench_fixture.h"

#include <algorithm>

#include <strata/kernels/elementwise.h>
#include <strata/runtime/units.h>

namespace strata {

const MeasureSizes& BenchFixture::sizes() const {
  static const MeasureSizes cores = {{32, 128, 512, 2048}, 1024,    1024, 512, 8, 64, 1024, 1024,
                                     128 * kMiB,           4 * kMiB};
  static const MeasureSizes gpu = {
      {128, 512, 2048, 8192}, 4096, 8192, 2048, 16, 128, 8192, 8192, 512 * kMiB, 32 * kMiB};
  return is_gpu() ? gpu : cores;
}

Result<std::unique_ptr<BenchFixture>> BenchFixture::create(const MeasureOptions& options) {
  auto fixture = std::make_unique<BenchFixture>();
  fixture->quick_ = options.quick;
  fixture->environment_ = options.environment;
  STRATA_TRY_ASSIGN(fixture->share_, process_core_share(fixture->environment_));
  STRATA_TRY_ASSIGN(fixture->pool_, ThreadPool::create(fixture->share_));
  STRATA_TRY_ASSIGN(fixture->device_, compute_device(options.backend, options.gpu));
  STRATA_TRY_ASSIGN(fixture->backend_, create_backend(fixture->device_.kind, {.gpu = options.gpu},
                                                      *fixture->pool_, fixture->clock_));
  STRATA_TRY_ASSIGN(fixture->compute_, fixture->backend_->create_stream(StreamRole::compute));
  return fixture;
}

Result<std::unique_ptr<ThreadPool>> BenchFixture::create_pool(int threads) const {
  STRATA_TRY_ASSIGN(const CoreShare share, process_core_share(environment_, {.threads = threads}));
  return ThreadPool::create(share);
}

Result<double> BenchFixture::seconds(const std::function<Status()>& round) {
  const double budget_s = quick_ ? 0.06 : 0.3;
  constexpr std::size_t kMinRounds = 3, kMaxRounds = 1000;
  STRATA_TRY(round());
  std::vector<double> all;
  for (double spent = 0; all.size() < kMinRounds || (spent < budget_s && all.size() < kMaxRounds);
       spent += all.back()) {
    const std::int64_t start = clock_.now_ns();
    STRATA_TRY(round());
    all.push_back(1e-9 * static_cast<double>(clock_.now_ns() - start));
  }
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

Result<double> BenchFixture::stream_seconds(const std::function<Status()>& queue) {
  return seconds([&] {
    STRATA_TRY(queue());
    return backend_->synchronize(compute_);
  });
}

Result<TensorView> BenchFixture::tensor(const Shape& shape, DType dtype) {
  STRATA_TRY_ASSIGN(
      Buffer buffer,
      backend_->allocate(MemoryKind::device, static_cast<std::size_t>(shape.n_elems()) * size_of(dtype)));
  const TensorView view{buffer.view().data, shape, dtype};
  buffers_.push_back(std::move(buffer));
  STRATA_TRY(kernels::fill_async(*backend_, compute_, {view, 0.5f}));
  STRATA_TRY(backend_->synchronize(compute_));
  return view;
}

Result<BufferView> BenchFixture::memory(MemoryKind kind, std::size_t bytes) {
  STRATA_TRY_ASSIGN(Buffer buffer, backend_->allocate(kind, bytes));
  buffers_.push_back(std::move(buffer));
  return buffers_.back().view();
}

}  // namespace strata
