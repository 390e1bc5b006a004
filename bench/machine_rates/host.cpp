#include <algorithm>
#include <cstring>
#include <initializer_list>

#include <strata/runtime/backend/cuda_backend.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "machine_rates/rates.h"

/// The parts that measure DRAM rates by number of threads, and link rates by size of copy.
namespace strata::bench {
namespace {

Result<std::string> gb_per_s(Bench& bench, std::size_t bytes, const std::function<Status()>& round) {
  return rate(bench, "gb_per_s", static_cast<double>(bytes), round);
}

// ---- DRAM

struct Stream3 {
  float* a;
  const float* b;
  const float* c;
  std::size_t n;
};

// There are more pieces than threads, so that an interrupted thread does not delay the others.
void in_pieces(ThreadPool& pool, std::size_t n,
               const std::function<void(std::size_t first, std::size_t count)>& body) {
  const std::size_t pieces = static_cast<std::size_t>(pool.threads()) * 8;
  const std::size_t length = round_up((n + pieces - 1) / pieces, std::size_t{1024});
  pool.parallel_for(static_cast<std::int64_t>(pieces), [&](std::int64_t i) {
    const std::size_t first = static_cast<std::size_t>(i) * length;
    if (first < n) body(first, std::min(length, n - first));
  });
}

Result<std::string> dram_with(Bench& bench, ThreadPool& pool, const Stream3& s) {
  // The store of the triad also reads its cache line first, which STREAM's count of 3 arrays ignores.
  const auto triad = [&] {
    in_pieces(pool, s.n, [&](std::size_t first, std::size_t count) {
      for (std::size_t i = first; i < first + count; ++i) s.a[i] = s.b[i] + 0.5f * s.c[i];
    });
    return Status::ok();
  };
  const auto copy = [&] {
    in_pieces(pool, s.n, [&](std::size_t first, std::size_t count) {
      std::memcpy(s.a + first, s.b + first, count * sizeof(float));
    });
    return Status::ok();
  };
  STRATA_TRY_ASSIGN(const std::string triad_rate, gb_per_s(bench, 3 * s.n * sizeof(float), triad));
  STRATA_TRY_ASSIGN(const std::string copy_rate, gb_per_s(bench, 2 * s.n * sizeof(float), copy));
  return fmt::format("{{\"threads\": {}, \"triad\": {}, \"copy\": {}}}", pool.threads(), triad_rate,
                     copy_rate);
}

}  // namespace

Status dram(Bench& bench, const RowSink& row) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<Backend> host, create_host_backend({}, *bench.pool, bench.clock));
  std::vector<Buffer> arrays;
  for (int i = 0; i < 3; ++i) {
    STRATA_TRY_ASSIGN(Buffer array, host->allocate(MemoryKind::pinned, bench.bytes));
    arrays.push_back(std::move(array));
  }
  const auto floats = [&](std::size_t i) { return reinterpret_cast<float*>(arrays[i].view().data); };
  std::vector<int> counts{1, 4, 8, 16};
  const int usable = bench.topology.usable_threads;
  if (std::find(counts.begin(), counts.end(), usable) == counts.end()) counts.push_back(usable);
  std::sort(counts.begin(), counts.end());
  for (const int threads : counts) {
    if (threads > usable) {
      row(fmt::format("{{\"threads\": {}, \"skipped\": \"{} hardware threads\"}}", threads, usable));
      continue;
    }
    STRATA_TRY_ASSIGN(const std::unique_ptr<ThreadPool> pool, ThreadPool::create(threads));
    STRATA_TRY_ASSIGN(
        const std::string rates,
        dram_with(bench, *pool, {floats(0), floats(1), floats(2), bench.bytes / sizeof(float)}));
    row(rates);
  }
  return Status::ok();
}

// ---- the link

namespace {

struct LinkCopy {
  Stream stream;
  Buffer device, pinned;
  bool down = false;  ///< device to pinned

  Status queue(Backend& backend, std::size_t total, std::size_t size) {
    for (std::size_t at = 0; at < total; at += size) {
      const BufferView on_device = device.view().part(at, size), on_host = pinned.view().part(at, size);
      STRATA_TRY(down ? backend.copy_async(on_host, on_device, stream)
                      : backend.copy_async(on_device, on_host, stream));
    }
    return Status::ok();
  }
};

Result<LinkCopy> make_link_copy(Backend& backend, StreamRole role, std::size_t bytes) {
  LinkCopy copy;
  STRATA_TRY_ASSIGN(copy.stream, backend.create_stream(role));
  STRATA_TRY_ASSIGN(copy.device, backend.allocate(MemoryKind::device, bytes));
  STRATA_TRY_ASSIGN(copy.pinned, backend.allocate(MemoryKind::pinned, bytes));
  copy.down = role == StreamRole::d2h;
  return copy;
}

}  // namespace

Status link(Bench& bench, const RowSink& row) {
  Backend& backend = *bench.backend;
  const std::size_t total = bench.bytes / (64 * kMiB) * (64 * kMiB);
  STRATA_TRY_ASSIGN(LinkCopy up, make_link_copy(backend, StreamRole::h2d, total));
  STRATA_TRY_ASSIGN(LinkCopy down, make_link_copy(backend, StreamRole::d2h, total));
  const auto run_copies = [&](std::initializer_list<LinkCopy*> copies, std::size_t size) {
    for (LinkCopy* copy : copies) STRATA_TRY(copy->queue(backend, total, size));
    for (LinkCopy* copy : copies) STRATA_TRY(backend.synchronize(copy->stream));
    return Status::ok();
  };
  const std::string device =
      json_string(bench.gpu ? backend.info().name : str("the host backend; ", cuda_status()));
  for (const std::size_t size : {kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB}) {
    STRATA_TRY_ASSIGN(const std::string h2d, gb_per_s(bench, total, [&] { return run_copies({&up}, size); }));
    STRATA_TRY_ASSIGN(const std::string d2h,
                      gb_per_s(bench, total, [&] { return run_copies({&down}, size); }));
    STRATA_TRY_ASSIGN(const std::string both, gb_per_s(bench, 2 * total, [&] {
                        return run_copies({&up, &down}, size);
                      }));
    row(fmt::format("{{\"device\": {}, \"copy_bytes\": {}, \"h2d\": {}, \"d2h\": {}, \"both\": {}}}", device,
                    size, h2d, d2h, both));
  }
  return Status::ok();
}

}  // namespace strata::bench
