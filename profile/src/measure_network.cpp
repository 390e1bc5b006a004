#include <strata/profile/measure_network.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include <strata/runtime/units.h>

#include "measure_parts.h"

namespace strata {
namespace {

/// Times collectives of one rank, which all ranks of the group do.
class GroupTimer {
 public:
  static Result<GroupTimer> create(ProcessGroup& group, Backend& backend, std::size_t largest_part) {
    GroupTimer timer(group, backend);
    const auto all = static_cast<std::size_t>(group.size()) * largest_part;
    STRATA_TRY_ASSIGN(timer.send_, backend.allocate(MemoryKind::device, all));
    STRATA_TRY_ASSIGN(timer.receive_, backend.allocate(MemoryKind::device, all));
    STRATA_TRY_ASSIGN(timer.stream_, backend.create_stream(StreamRole::collective));
    return timer;
  }

  /// Median seconds of a collective in which every rank sends `part` bytes to every other one, in rounds of
  /// `n` all-gathers and as many all-to-alls.
  Result<double> seconds(std::size_t part, int n, int rounds) {
    std::vector<double> found;
    for (int round = -1; round < rounds; ++round) {  // the first one warms up
      const std::int64_t begin = clock_.now_ns();
      for (int i = 0; i < n; ++i) STRATA_TRY(exchange(part));
      STRATA_TRY(backend_.synchronize(stream_));
      if (round >= 0) found.push_back(static_cast<double>(clock_.now_ns() - begin) * 1e-9 / (2 * n));
    }
    std::nth_element(found.begin(), found.begin() + rounds / 2, found.end());
    return found[static_cast<std::size_t>(rounds / 2)];
  }

 private:
  GroupTimer(ProcessGroup& group, Backend& backend) : group_(group), backend_(backend) {}

  Status exchange(std::size_t part) {
    const BufferView all = receive_.view().part(0, static_cast<std::size_t>(group_.size()) * part);
    STRATA_TRY(group_.all_gather(send_.view().part(0, part), all, stream_));
    return group_.all_to_all(send_.view().part(0, all.bytes), all, stream_);
  }

  ProcessGroup& group_;
  Backend& backend_;
  SteadyClock clock_;
  Buffer send_, receive_;
  Stream stream_;
};

Result<NetworkRate> measure_group(ProcessGroup& group, Backend& backend, bool quick) {
  constexpr std::size_t kFewBytes = 4096, kMostMemory = 64 * kMiB;
  const auto peers = static_cast<std::size_t>(group.size());
  const std::size_t large =
      std::max(2 * kFewBytes, std::min(4 * kMiB, kMostMemory / peers / kFewBytes * kFewBytes));
  STRATA_TRY_ASSIGN(GroupTimer timer, GroupTimer::create(group, backend, large));
  STRATA_TRY_ASSIGN(const double small_s, timer.seconds(kFewBytes, quick ? 20 : 100, quick ? 3 : 7));
  STRATA_TRY_ASSIGN(const double large_s, timer.seconds(large, quick ? 2 : 6, quick ? 3 : 7));
  const auto sent = [&](std::size_t part) { return static_cast<double>((peers - 1) * part); };
  // The line through both; noise may not make the large ones faster than the small ones.
  const double rate = (sent(large) - sent(kFewBytes)) / std::max(large_s - small_s, 0.1 * large_s);
  return NetworkRate{rate, std::max(0.0, small_s - sent(kFewBytes) / rate)};
}

Status measure_as(World& rank, Backend& backend, bool quick, NetworkRate& rate) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<ProcessGroup> group, rank.create_group(backend));
  STRATA_TRY_ASSIGN(rate, measure_group(*group, backend, quick));
  return {};
}

}  // namespace

Result<NetworkRate> measure_network(const MeasureOptions& options, World& world) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<BenchFixture> fixture, BenchFixture::create(options));
  NetworkRate rate;
  STRATA_TRY(measure_as(world, fixture->backend(), options.quick, rate));
  return rate;
}

Status measure_thread_network(BenchFixture& fixture, bool quick, MachineProfile& p) {
  if (fixture.is_gpu()) return {};  // ranks as threads work on the host backend only
  STRATA_TRY_ASSIGN(auto worlds, create_thread_worlds(2));
  std::array<NetworkRate, 2> rates;
  std::array<Status, 2> statuses;
  {
    std::vector<std::jthread> ranks;
    for (std::size_t rank = 0; rank < rates.size(); ++rank)
      ranks.emplace_back([&, rank] {
        statuses[rank] = measure_as(*worlds[rank], fixture.backend(), quick, rates[rank]);
        if (!statuses[rank].is_ok()) worlds[rank].reset();  // so that the other one does not wait for it
      });
  }
  for (const Status& status : statuses) STRATA_TRY(status);
  p.thread_network_bytes_per_s = std::min(rates[0].bytes_per_s, rates[1].bytes_per_s);
  p.thread_network_latency_s = std::max(rates[0].latency_s, rates[1].latency_s);
  return {};
}

}  // namespace strata
