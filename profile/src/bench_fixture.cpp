#include "bench_fixture.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include <strata/runtime/units.h>

namespace strata {
namespace {

// Random values of (-1, 1) in f32, or in bf16, which is its upper half.
std::vector<std::byte> random_values(std::size_t bytes, DType dtype) {
  std::vector<std::byte> out(bytes);
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> values(-1.0f, 1.0f);
  const std::size_t size = size_of(dtype);
  for (std::size_t at = 0; at + size <= bytes; at += size) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(values(random)) >> (8 * (sizeof(float) - size));
    std::memcpy(out.data() + at, &bits, size);
  }
  return out;
}

}  // namespace

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
  int times = 1;
  const auto round = [&] {
    for (int i = 0; i < times; ++i) STRATA_TRY(queue());
    return backend_->synchronize(compute_);
  };
  if (is_gpu()) {
    STRATA_TRY(round());  // chooses algorithms
    const double start = now_s();
    STRATA_TRY(round());
    constexpr double kLongEnough = 1e-3;
    times = std::clamp(static_cast<int>(std::ceil(kLongEnough / (now_s() - start))), 1, 100);
  }
  STRATA_TRY_ASSIGN(const double s, seconds(round));
  return s / times;
}

Result<TensorView> BenchFixture::tensor(const Shape& shape, DType dtype) {
  STRATA_TRY_ASSIGN(
      Buffer buffer,
      backend_->allocate(MemoryKind::device, static_cast<std::size_t>(shape.n_elems()) * size_of(dtype)));
  const TensorView view{buffer.view().data, shape, dtype};
  buffers_.push_back(std::move(buffer));
  constexpr std::size_t kPiece = 4 * kMiB;
  std::vector<std::byte> piece = random_values(std::min(view.bytes(), kPiece), dtype);
  for (std::size_t at = 0; at < view.bytes(); at += piece.size()) {
    const std::size_t bytes = std::min(piece.size(), view.bytes() - at);
    STRATA_TRY(backend_->copy_async({view.data + at, bytes}, {piece.data(), bytes}, compute_));
  }
  STRATA_TRY(backend_->synchronize(compute_));
  return view;
}

Result<BufferView> BenchFixture::memory(MemoryKind kind, std::size_t bytes) {
  STRATA_TRY_ASSIGN(Buffer buffer, backend_->allocate(kind, bytes));
  buffers_.push_back(std::move(buffer));
  return buffers_.back().view();
}

}  // namespace strata
