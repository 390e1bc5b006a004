#include "measure_parts.h"

#include <algorithm>
#include <array>
#include <functional>

#include <strata/cpuopt/update.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

void in_pieces(ThreadPool& pool, std::int64_t n,
               const std::function<void(std::int64_t first, std::int64_t count)>& body) {
  constexpr std::int64_t kPiece = 65536;
  pool.parallel_for((n + kPiece - 1) / kPiece,
                    [&](std::int64_t i) { body(i * kPiece, std::min(kPiece, n - i * kPiece)); });
}

/// AdamW over `n` bf16 parameters with moments in `format`.
class UpdateJob {
 public:
  static Result<UpdateJob> create(BenchFixture& fixture, StateFormat format, std::int64_t n) {
    std::array<BufferView, 5> memory{};  // parameter, low half of the master, both moments, gradient
    const std::size_t two = static_cast<std::size_t>(n) * 2, moment = moment_bytes(format, n);
    const std::array<std::size_t, 5> sizes = {two, two, moment, moment, two};
    for (std::size_t i = 0; i < memory.size(); ++i) {
      STRATA_TRY_ASSIGN(memory[i], fixture.memory(MemoryKind::pinned, sizes[i]));
    }
    cpuopt::OptimizerParams params;
    params.lr = 1e-4;
    UpdateJob job;
    job.n_ = n;
    job.step_ = cpuopt::make_update_step(params);
    job.all_ = {.layout = cpuopt::MasterLayout::bf16_split,
                .states = format,
                .grad = DType::bf16,
                .param = memory[0].data,
                .master = memory[1].data,
                .m = cpuopt::moment_at(format, memory[2].data, n),
                .v = cpuopt::moment_at(format, memory[3].data, n),
                .g = memory[4].data};
    return job;
  }
  /// Seconds per parameter on the threads of `pool`.
  Result<double> seconds_by(BenchFixture& fixture, ThreadPool& pool) const {
    STRATA_TRY_ASSIGN(const double s, fixture.seconds([&] {
      in_pieces(pool, n_, [&](std::int64_t first, std::int64_t count) {
        cpuopt::UpdateBlock block = all_.at(first);
        block.index = static_cast<std::uint32_t>(first);
        cpuopt::update_block(step_, block, count, cpuopt::rounding_noise(1, 0, 1, first));
      });
      return Status::ok();
    }));
    return s / static_cast<double>(n_);
  }

 private:
  std::int64_t n_ = 0;
  cpuopt::UpdateStep step_;
  cpuopt::UpdateBlock all_;
};

}  // namespace

Status measure_ram(BenchFixture& fixture, bool quick, MachineProfile& p) {
  const std::int64_t n = (quick ? 8 : 32) * static_cast<std::int64_t>(kMiB);
  std::array<float*, 3> arrays{};
  for (float*& array : arrays) {
    STRATA_TRY_ASSIGN(const BufferView view,
                      fixture.memory(MemoryKind::pinned, static_cast<std::size_t>(n) * sizeof(float)));
    array = reinterpret_cast<float*>(view.data);
  }
  STRATA_TRY_ASSIGN(const double s, fixture.seconds([&] {
    in_pieces(fixture.pool(), n, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t i = first; i < first + count; ++i) arrays[0][i] = arrays[1][i] + 0.5f * arrays[2][i];
    });
    return Status::ok();
  }));
  // 4 streams: two reads, one write, and the read of the written cache line (write-allocate).
  p.host_bytes_per_s = 4.0 * static_cast<double>(n) * sizeof(float) / s;
  fixture.release_buffers();
  return {};
}

Status measure_optimizer(BenchFixture& fixture, bool quick, MachineProfile& p) {
  const std::int64_t n = (quick ? 2 : 8) * static_cast<std::int64_t>(kMiB);
  for (const StateFormat format : {StateFormat::fp32, StateFormat::bf16, StateFormat::int8}) {
    STRATA_TRY_ASSIGN(const UpdateJob job, UpdateJob::create(fixture, format, n));
    STRATA_TRY_ASSIGN(p.update_s_per_param[static_cast<std::size_t>(format)],
                      job.seconds_by(fixture, fixture.pool()));
    fixture.release_buffers();
  }
  STRATA_TRY_ASSIGN(const UpdateJob job, UpdateJob::create(fixture, StateFormat::fp32, n));
  for (int threads = 1; threads < p.cores; threads *= 2) {
    STRATA_TRY_ASSIGN(const std::unique_ptr<ThreadPool> pool, fixture.create_pool(threads));
    STRATA_TRY_ASSIGN(const double s, job.seconds_by(fixture, *pool));
    p.update_threads.push_back(threads);
    p.update_s_by_threads.push_back(s);
  }
  p.update_threads.push_back(p.cores);
  p.update_s_by_threads.push_back(p.update_s_per_param[0]);
  fixture.release_buffers();
  return {};
}

}  // namespace strata
