#include <strata/parallel/paced_group.h>

#include <utility>

namespace strata {
namespace {

void only_take_time(const int&, ThreadPool&) {}

/// Queues each collective of `group`, and behind it the time that it takes on the network: when all ranks
/// have come, which the collective waits for, their transfers begin together.
class PacedGroup final : public ProcessGroup {
 public:
  PacedGroup(std::unique_ptr<ProcessGroup> group, Backend& backend, const NetworkRate& rate)
      : group_(std::move(group)), backend_(backend), rate_(rate) {}
  int rank() const noexcept override { return group_->rank(); }
  int size() const noexcept override { return group_->size(); }
  GroupCounters counters() const noexcept override { return group_->counters(); }

  Status queue(const Collective& collective, Stream& stream) override {
    STRATA_TRY(group_->queue(collective, stream));
    const std::int64_t ns = duration_ns(rate_, wire_bytes(collective, rank(), size()));
    if (ns == 0) return {};
    HostCall call("network", &only_take_time, 0);
    return backend_.host_call_async(call.paced(ns), stream);
  }

  Result<std::unique_ptr<ProcessGroup>> split(std::span<const int> members) override {
    STRATA_TRY_ASSIGN(auto part, group_->split(members));
    return create_paced_group(std::move(part), backend_, rate_);
  }

 private:
  const std::unique_ptr<ProcessGroup> group_;
  Backend& backend_;
  const NetworkRate rate_;
};

}  // namespace

std::unique_ptr<ProcessGroup> create_paced_group(std::unique_ptr<ProcessGroup> group, Backend& backend,
                                                 const NetworkRate& rate) {
  return std::make_unique<PacedGroup>(std::move(group), backend, rate);
}

}  // namespace strata
