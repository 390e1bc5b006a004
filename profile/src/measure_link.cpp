#include "measure_parts.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

// Rates of single copies by size, each waited for before the next, from and to pinned and pageable memory.
Status copies_by_size(BenchFixture& fixture, bool quick, const BufferView& device, const BufferView& pinned,
                      Stream& up, Stream& down, MachineProfile& p) {
  p.copy_sizes = {16.0 * kKiB, 256.0 * kKiB, 4.0 * kMiB, static_cast<double>(fixture.sizes().link_piece * 4)};
  if (quick) p.copy_sizes.erase(p.copy_sizes.begin());
  const auto largest = static_cast<std::size_t>(p.copy_sizes.back());
  const std::unique_ptr<std::byte[], decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(4096, largest)), &std::free);
  if (memory == nullptr) return Status::error(Code::out_of_memory, str(largest, " bytes of pageable memory"));
  std::memset(memory.get(), 0, largest);
  const BufferView pageable{memory.get(), largest};
  const auto rates = [&](const BufferView& host, bool rises, std::vector<double>& out) -> Status {
    Stream& stream = rises ? up : down;
    for (const double size : p.copy_sizes) {
      const auto n = static_cast<std::size_t>(size);
      const std::size_t copies = std::max<std::size_t>(1, largest / n / 4);
      STRATA_TRY_ASSIGN(const double s, fixture.seconds([&] {
        for (std::size_t i = 0; i < copies; ++i) {
          const BufferView there = device.part(i * n, n), here = host.part(i * n, n);
          STRATA_TRY(fixture.backend().copy_async(rises ? there : here, rises ? here : there, stream));
          STRATA_TRY(fixture.backend().synchronize(stream));
        }
        return Status::ok();
      }));
      out.push_back(size * static_cast<double>(copies) / s);
    }
    return {};
  };
  STRATA_TRY(rates(pinned, true, p.h2d_by_size));
  STRATA_TRY(rates(pinned, false, p.d2h_by_size));
  STRATA_TRY(rates(pageable, true, p.h2d_pageable_by_size));
  return rates(pageable, false, p.d2h_pageable_by_size);
}

}  // namespace

Status measure_link(BenchFixture& fixture, bool quick, MachineProfile& p) {
  const std::size_t bytes = fixture.sizes().link_bytes / (quick ? 4 : 1), piece = fixture.sizes().link_piece;
  STRATA_TRY_ASSIGN(Stream up, fixture.backend().create_stream(StreamRole::h2d));
  STRATA_TRY_ASSIGN(Stream down, fixture.backend().create_stream(StreamRole::d2h));
  std::array<BufferView, 4> ends{};
  for (std::size_t i = 0; i < ends.size(); ++i) {
    STRATA_TRY_ASSIGN(ends[i], fixture.memory(i % 2 == 0 ? MemoryKind::device : MemoryKind::pinned, bytes));
  }
  const auto carry = [&](bool rises, bool falls, std::size_t of) {
    for (std::size_t at = 0; at + of <= bytes; at += of) {
      if (rises) STRATA_TRY(fixture.backend().copy_async(ends[0].part(at, of), ends[1].part(at, of), up));
      if (falls) STRATA_TRY(fixture.backend().copy_async(ends[3].part(at, of), ends[2].part(at, of), down));
    }
    STRATA_TRY(fixture.backend().synchronize(up));
    return fixture.backend().synchronize(down);
  };
  const auto rate = [&](bool rises, bool falls) -> Result<double> {
    STRATA_TRY_ASSIGN(const double s, fixture.seconds([&] { return carry(rises, falls, piece); }));
    return static_cast<double>(bytes) * (rises && falls ? 2 : 1) / s;
  };
  STRATA_TRY_ASSIGN(p.h2d_bytes_per_s, rate(true, false));
  STRATA_TRY_ASSIGN(p.d2h_bytes_per_s, rate(false, true));
  STRATA_TRY_ASSIGN(const double both, rate(true, true));
  p.link_bytes_per_s = combined_rate(both, p.h2d_bytes_per_s, p.d2h_bytes_per_s);
  constexpr std::size_t kSmallCopy = 4096, kCopies = 256;
  STRATA_TRY_ASSIGN(const double small, fixture.seconds([&] {
    for (std::size_t i = 0; i < kCopies; ++i)
      STRATA_TRY(fixture.backend().copy_async(ends[0].part(0, kSmallCopy), ends[1].part(0, kSmallCopy), up));
    return fixture.backend().synchronize(up);
  }));
  p.link_latency_s = std::max(0.0, small / kCopies - static_cast<double>(kSmallCopy) / p.h2d_bytes_per_s);
  STRATA_TRY(copies_by_size(fixture, quick, ends[0], ends[1], up, down, p));
  fixture.release_buffers();
  return {};
}

// Two streams wait for each other in turn. Each copies 4 KiB, and the known time of the copies is subtracted.
Status measure_event_latency(BenchFixture& fixture, MachineProfile& p) {
  STRATA_TRY_ASSIGN(Stream other, fixture.backend().create_stream(StreamRole::h2d));
  STRATA_TRY_ASSIGN(const BufferView here, fixture.memory(MemoryKind::pinned, 4096));
  STRATA_TRY_ASSIGN(const BufferView there, fixture.memory(MemoryKind::device, 4096));
  constexpr int kTurns = 200;
  STRATA_TRY_ASSIGN(const double s, fixture.stream_seconds([&] {
    for (int turn = 0; turn < kTurns; ++turn)
      for (Stream* stream : {&other, &fixture.compute()}) {
        STRATA_TRY(fixture.backend().copy_async(there, here, *stream));
        STRATA_TRY_ASSIGN(const Event done, fixture.backend().record(*stream));
        STRATA_TRY(fixture.backend().wait_on_async(done, stream == &other ? fixture.compute() : other));
      }
    return Status::ok();
  }));
  p.wake_s = std::max(
      0.0, s / (2 * kTurns) - p.link_latency_s - static_cast<double>(here.bytes) / p.h2d_bytes_per_s);
  fixture.release_buffers();
  return {};
}

}  // namespace strata
