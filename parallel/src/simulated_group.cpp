#include <strata/parallel/simulated_group.h>

#include <algorithm>
#include <cmath>

namespace strata {
namespace {

void move_nothing(const int&, ThreadPool&) {}

class SimulatedGroup final : public ProcessGroup {
 public:
  SimulatedGroup(int size, int rank, Backend& backend, const NetworkRate& rate)
      : size_(size), rank_(rank), backend_(backend), rate_(rate) {}
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  GroupCounters counters() const noexcept override { return counters_; }

  Status queue(const Collective& collective, Stream& stream) override {
    STRATA_TRY(check(collective, rank_, size_));
    const CollectiveBytes bytes = wire_bytes(collective, rank_, size_);
    ++counters_.calls;
    counters_.sent_bytes += bytes.sent;
    counters_.received_bytes += bytes.received;
    const std::int64_t ns = duration_ns(rate_, bytes);
    if (ns == 0) return {};
    HostCall call(to_string(collective.kind).data(), &move_nothing, 0);
    return backend_.host_call_async(call.paced(ns), stream);
  }

  Result<std::unique_ptr<ProcessGroup>> split(std::span<const int> members) override {
    STRATA_TRY(check_members(members, rank_, size_));
    const auto position = std::find(members.begin(), members.end(), rank_) - members.begin();
    return create_simulated_group(static_cast<int>(members.size()), static_cast<int>(position), backend_,
                                  rate_);
  }

 private:
  const int size_, rank_;
  Backend& backend_;
  const NetworkRate rate_;
  GroupCounters counters_;
};

}  // namespace

std::int64_t duration_ns(const NetworkRate& rate, const CollectiveBytes& bytes) noexcept {
  const std::uint64_t moved = std::max(bytes.sent, bytes.received);
  if (rate.bytes_per_s <= 0 || moved == 0) return 0;
  const double seconds = rate.latency_s + static_cast<double>(moved) / rate.bytes_per_s;
  return std::max<std::int64_t>(1, std::llround(seconds * 1e9));
}

std::unique_ptr<ProcessGroup> create_simulated_group(int size, int rank, Backend& backend,
                                                     const NetworkRate& rate) {
  return std::make_unique<SimulatedGroup>(size, rank, backend, rate);
}

}  // namespace strata
