#include "measure_parts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include <strata/cpuopt/update.h>
#include <strata/profile/measure.h>
#include <strata/runtime/threads/topology.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

void in_pieces(ThreadPool& pool, std::int64_t n,
               const std::function<void(std::int64_t first, std::int64_t count)>& body) {
  constexpr std::int64_t kPiece = 65536;
  pool.parallel_for((n + kPiece - 1) / kPiece,
                    [&](std::int64_t i) { body(i * kPiece, std::min(kPiece, n - i * kPiece)); });
}

/// x = y + z / 2, or x += z / 2 without y. The lines that are `ahead` elements away are prefetched, unless it
/// is 0.
template <bool kTriad>
void stream(float* x, const float* y, const float* z, std::int64_t n, std::int64_t ahead) {
  constexpr std::int64_t kLine = 16;  // elements of a cache line
  for (std::int64_t line = 0; line + kLine <= n; line += kLine) {
    if (ahead > 0) {
      if constexpr (kTriad) __builtin_prefetch(y + line + ahead);
      __builtin_prefetch(z + line + ahead);
      __builtin_prefetch(x + line + ahead, 1);
    }
    for (std::int64_t i = line; i < line + kLine; ++i) x[i] = (kTriad ? y[i] : x[i]) + 0.5f * z[i];
  }
}

/// AdamW over as many bf16 parameters with moments in `format` as `memory` holds.
class UpdateJob {
 public:
  UpdateJob(StateFormat format, const BufferView& in) {
    constexpr std::int64_t kSample = std::int64_t{1} << 20, kAlign = 64;
    const auto sizes = [&](std::int64_t n) {
      // parameter, low half of the master, both moments, gradient
      const std::size_t two = static_cast<std::size_t>(n) * 2, moment = moment_bytes(format, n);
      return std::array<std::size_t, 5>{two, two, moment, moment, two};
    };
    const std::array<std::size_t, 5> sample = sizes(kSample);
    const std::size_t bytes = std::accumulate(sample.begin(), sample.end(), std::size_t{0});
    n_ = static_cast<std::int64_t>((in.bytes - sample.size() * kAlign) / bytes) * kSample;
    std::array<BufferView, 5> memory{};
    std::size_t at = 0;
    for (std::size_t i = 0; i < memory.size(); ++i) {
      memory[i] = in.part(at, sizes(n_)[i]);
      at += (sizes(n_)[i] + kAlign - 1) / kAlign * kAlign;
    }
    cpuopt::OptimizerParams params;
    params.lr = 1e-4;
    step_ = cpuopt::make_update_step(params);
    all_ = {.layout = cpuopt::MasterLayout::bf16_split,
            .states = format,
            .grad = DType::bf16,
            .param = memory[0].data,
            .master = memory[1].data,
            .m = cpuopt::moment_at(format, memory[2].data, n_),
            .v = cpuopt::moment_at(format, memory[3].data, n_),
            .g = memory[4].data};
  }
  std::int64_t n() const noexcept { return n_; }
  /// Updates all parameters once, on the threads of `pool`.
  void run(ThreadPool& pool) const {
    in_pieces(pool, n_, [&](std::int64_t first, std::int64_t count) {
      cpuopt::UpdateBlock block = all_.at(first);
      block.index = static_cast<std::uint32_t>(first);
      cpuopt::update_block(step_, block, count, cpuopt::rounding_noise(1, 0, 1, first));
    });
  }
  /// Seconds per parameter.
  Result<double> seconds_by(BenchFixture& fixture, ThreadPool& pool) const {
    STRATA_TRY_ASSIGN(const double s, fixture.seconds([&] {
      run(pool);
      return Status::ok();
    }));
    return s / static_cast<double>(n_);
  }

 private:
  std::int64_t n_ = 0;
  cpuopt::UpdateStep step_;
  cpuopt::UpdateBlock all_;
};

/// Memory in RAM, of which a second sweep finds hardly anything in a cache.
Result<BufferView> working_set(BenchFixture& fixture) {
  const auto topology = read_topology();
  const std::uint64_t l3 = topology.has_value() ? topology->l3_bytes : 0;
  return fixture.memory(MemoryKind::pinned, ram_working_set(l3, read_host_facts().usable_ram_bytes()));
}

/// Measures the optimizer and copies in both directions beside each other: updates while more copies are
/// queued than end before them, and these copies while updates go on until the last one.
Status measure_contention(BenchFixture& fixture, const UpdateJob& job, MachineProfile& p) {
  constexpr std::size_t kPieces = 8;
  const std::size_t piece = fixture.sizes().link_piece;
  STRATA_TRY_ASSIGN(Stream up, fixture.backend().create_stream(StreamRole::h2d));
  STRATA_TRY_ASSIGN(Stream down, fixture.backend().create_stream(StreamRole::d2h));
  std::array<BufferView, 4> ends{};
  for (std::size_t i = 0; i < ends.size(); ++i) {
    STRATA_TRY_ASSIGN(ends[i],
                      fixture.memory(i % 2 == 0 ? MemoryKind::device : MemoryKind::pinned, kPieces * piece));
  }
  const auto queue = [&](std::size_t copies) -> Status {
    for (std::size_t i = 0; i < copies; ++i) {
      const std::size_t at = i % kPieces * piece;
      STRATA_TRY(fixture.backend().copy_async(ends[0].part(at, piece), ends[1].part(at, piece), up));
      STRATA_TRY(fixture.backend().copy_async(ends[3].part(at, piece), ends[2].part(at, piece), down));
    }
    return {};
  };
  const double update_s = p.update_s_per_param[0] * static_cast<double>(job.n());
  const double fastest = std::max(p.h2d_bytes_per_s, p.d2h_bytes_per_s) / static_cast<double>(piece);
  const auto outlasting = static_cast<std::size_t>(3 * update_s * fastest) + 1,
             within = static_cast<std::size_t>(std::max(1.0, 0.25 * update_s * fastest));
  const auto median = [](std::vector<double>& values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                     values.end());
    return values[values.size() / 2];
  };
  std::vector<double> updates, copies;
  const auto update_beside = [&]() -> Status {
    STRATA_TRY(queue(outlasting));
    const double start = fixture.now_s();
    job.run(fixture.pool());
    updates.push_back(fixture.now_s() - start);
    STRATA_TRY(fixture.backend().synchronize(up));
    return fixture.backend().synchronize(down);
  };
  const auto copies_beside = [&]() -> Status {
    Status copied;
    double seconds = 0;
    std::thread watch([&] {  // for the update keeps this thread
      const double start = fixture.now_s();
      copied = queue(within);
      if (copied.is_ok()) copied = fixture.backend().synchronize(up);
      if (copied.is_ok()) copied = fixture.backend().synchronize(down);
      seconds = fixture.now_s() - start;
    });
    job.run(fixture.pool());
    watch.join();
    copies.push_back(seconds);
    return copied;
  };
  STRATA_TRY(fixture.seconds(update_beside).status());
  STRATA_TRY(fixture.seconds(copies_beside).status());
  p.update_beside_copies_s_per_param = median(updates) / static_cast<double>(job.n());
  p.link_beside_update_bytes_per_s = 2 * static_cast<double>(within * piece) / median(copies);
  return {};
}

}  // namespace

std::uint64_t ram_working_set(std::uint64_t l3_bytes, std::uint64_t free_bytes) noexcept {
  constexpr std::uint64_t kLeast = 64 * kMiB;
  return std::max(kLeast, std::min(std::max(kGiB, 8 * l3_bytes), free_bytes / 4)) / kMiB * kMiB;
}

Status measure_ram(BenchFixture& fixture, MachineProfile& p) {
  STRATA_TRY_ASSIGN(const BufferView memory, working_set(fixture));
  const auto n = static_cast<std::int64_t>(memory.bytes / (3 * sizeof(float)) / 16 * 16);
  const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(float);
  std::array<float*, 3> arrays{};
  for (std::size_t i = 0; i < arrays.size(); ++i)
    arrays[i] = reinterpret_cast<float*>(memory.part(i * bytes, bytes).data);
  // The fastest of a few ways counts: few cores reach the rate of RAM only if they ask early for what comes.
  const auto measure = [&](bool triad, std::int64_t ahead) -> Status {
    STRATA_TRY_ASSIGN(const double s, fixture.seconds([&] {
      in_pieces(fixture.pool(), n, [&](std::int64_t at, std::int64_t count) {
        triad ? stream<true>(arrays[0] + at, arrays[1] + at, arrays[2] + at, count, ahead)
              : stream<false>(arrays[0] + at, nullptr, arrays[2] + at, count, ahead);
      });
      return Status::ok();
    }));
    // Two or one reads, one write, and what is written is read first, from RAM or as an operand.
    p.host_bytes_per_s = std::max(p.host_bytes_per_s, (triad ? 4.0 : 3.0) * static_cast<double>(bytes) / s);
    return {};
  };
  for (int pass = 0; pass < 2; ++pass)  // since other users of the memory come and go
    for (const bool triad : {true, false})
      for (const std::int64_t ahead : {0, 256}) STRATA_TRY(measure(triad, ahead));
  fixture.release_buffers();
  return {};
}

Status measure_optimizer(BenchFixture& fixture, MachineProfile& p) {
  STRATA_TRY_ASSIGN(const BufferView memory, working_set(fixture));
  for (const StateFormat format : {StateFormat::fp32, StateFormat::bf16, StateFormat::int8}) {
    std::memset(memory.data, 0, memory.bytes);
    STRATA_TRY_ASSIGN(p.update_s_per_param[static_cast<std::size_t>(format)],
                      UpdateJob(format, memory).seconds_by(fixture, fixture.pool()));
  }
  std::memset(memory.data, 0, memory.bytes);
  const UpdateJob job(StateFormat::fp32, memory);
  for (int threads = 1; threads < p.cores; threads *= 2) {
    STRATA_TRY_ASSIGN(const std::unique_ptr<ThreadPool> pool, fixture.create_pool(threads));
    STRATA_TRY_ASSIGN(const double s, job.seconds_by(fixture, *pool));
    p.update_threads.push_back(threads);
    p.update_s_by_threads.push_back(s);
  }
  p.update_threads.push_back(p.cores);
  p.update_s_by_threads.push_back(p.update_s_per_param[0]);
  if (fixture.is_gpu()) {
    STRATA_TRY(measure_contention(fixture, job, p));
  }
  fixture.release_buffers();
  return {};
}

}  // namespace strata
