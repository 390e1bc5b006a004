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
    if (rate_.bytes_per_s <= 0 || size_ == 1) return {};
    const double seconds =
        rate_.latency_s + static_cast<double>(std::max(bytes.sent, bytes.received)) / rate_.bytes_per_s;
    HostCall call(to_string(collective.kind).data(), &move_nothing, 0);
    call.paced(std::max<std::int64_t>(1, std::llround(seconds * 1e9)));
    return backend_.host_call_async(call, stream);
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

std::unique_ptr<ProcessGroup> create_simulated_group(int size, int rank, Backend& backend,
                                                     const NetworkRate& rate) {
  return std::make_unique<SimulatedGroup>(size, rank, backend, rate);
}

}  // namespace strata
