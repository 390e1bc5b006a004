#include <strata/parallel/simulated_group.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace strata {
namespace {

void move_nothing(const int&, ThreadPool&) {}

/// How a collective takes its time.
class Queue {
 public:
  virtual ~Queue() = default;
  /// `members`: its ranks, as numbers of the run, and `between`: the two of a message, as numbers of the
  /// group.
  virtual Status queue(const Collective& collective, std::span<const int> members,
                       const std::vector<int>& between, std::int64_t ns, Stream& stream) = 0;
  virtual std::unique_ptr<Queue> of_split(std::span<const int> members) = 0;
};

class Alone final : public Queue {
 public:
  explicit Alone(Backend& backend) : backend_(backend) {}
  Status queue(const Collective& collective, std::span<const int>, const std::vector<int>&, std::int64_t ns,
               Stream& stream) override {
    if (ns == 0) return {};
    HostCall call(to_string(collective.kind).data(), &move_nothing, 0);
    return backend_.host_call_async(call.paced(ns), stream);
  }
  std::unique_ptr<Queue> of_split(std::span<const int>) override { return std::make_unique<Alone>(backend_); }

 private:
  Backend& backend_;
};

class Together final : public Queue {
 public:
  Together(const SimulatedPeers& peers, SimulatedRanks::Key lineage)
      : peers_(peers), lineage_(std::move(lineage)) {}

  Status queue(const Collective& collective, std::span<const int> members, const std::vector<int>& between,
               std::int64_t ns, Stream& stream) override {
    SimulatedRanks::Key key = lineage_;
    key.insert(key.end(), between.begin(), between.end());
    key.push_back(counts_[between]++);
    peers_.machine.meet(stream.role(), ns, to_string(collective.kind).data(),
                        peers_.ranks.meeting(key, members));
    return {};
  }
  std::unique_ptr<Queue> of_split(std::span<const int> members) override {
    SimulatedRanks::Key lineage = lineage_;
    lineage.push_back(-1 - n_splits_++);
    lineage.insert(lineage.end(), members.begin(), members.end());
    return std::make_unique<Together>(peers_, std::move(lineage));
  }

 private:
  const SimulatedPeers peers_;
  const SimulatedRanks::Key lineage_;
  std::map<std::vector<int>, int> counts_;  // messages between two ranks; the empty key counts collectives
  int n_splits_ = 0;
};

class SimulatedGroup final : public ProcessGroup {
 public:
  /// `members`: the group's ranks as numbers of the run.
  SimulatedGroup(std::vector<int> members, int rank, const NetworkRates& rates, std::unique_ptr<Queue> queue)
      : members_(std::move(members)), rank_(rank), rates_(rates), queue_(std::move(queue)) {}
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(members_.size()); }
  GroupCounters counters() const noexcept override { return counters_; }

  Status queue(const Collective& collective, Stream& stream) override {
    STRATA_TRY(check(collective, rank_, size()));
    const CollectiveBytes bytes = wire_bytes(collective, rank_, size());
    ++counters_.calls;
    counters_.sent_bytes += bytes.sent;
    counters_.received_bytes += bytes.received;
    std::vector<int> between;
    if (collective.kind == CollectiveKind::send) between = {rank_, collective.peer};
    if (collective.kind == CollectiveKind::receive) between = {collective.peer, rank_};
    const std::vector<int> members = between.empty() ? members_ : of_run(between);
    return queue_->queue(collective, members, between, duration_ns(rates_.of(members), bytes), stream);
  }

  Result<std::unique_ptr<ProcessGroup>> split(std::span<const int> members) override {
    STRATA_TRY(check_members(members, rank_, size()));
    const auto position =
        static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
    std::vector<int> part = of_run(members);
    auto queue = queue_->of_split(part);
    return std::make_unique<SimulatedGroup>(std::move(part), position, rates_, std::move(queue));
  }

 private:
  std::vector<int> of_run(std::span<const int> ranks) const {
    std::vector<int> found;
    for (const int rank : ranks) found.push_back(members_[static_cast<std::size_t>(rank)]);
    return found;
  }

  const std::vector<int> members_;
  const int rank_;
  const NetworkRates rates_;
  GroupCounters counters_;
  const std::unique_ptr<Queue> queue_;
};

std::vector<int> all_of(int size) {
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

std::int64_t duration_ns(const NetworkRate& rate, const CollectiveBytes& bytes) noexcept {
  const std::uint64_t moved = std::max(bytes.sent, bytes.received);
  if (rate.bytes_per_s <= 0 || moved == 0) return 0;
  const double seconds = rate.latency_s + static_cast<double>(moved) / rate.bytes_per_s;
  return std::max<std::int64_t>(1, std::llround(seconds * 1e9));
}

const NetworkRate& NetworkRates::of(std::span<const int> members) const noexcept {
  const auto node = [&](int rank) { return rank / node_ranks; };
  const bool one_node = node_ranks > 0 && std::all_of(members.begin(), members.end(), [&](int rank) {
                          return node(rank) == node(members.front());
                        });
  return one_node ? within : between;
}

std::unique_ptr<ProcessGroup> create_simulated_group(int size, int rank, Backend& backend,
                                                     const NetworkRates& rates) {
  return std::make_unique<SimulatedGroup>(all_of(size), rank, rates, std::make_unique<Alone>(backend));
}

std::unique_ptr<ProcessGroup> create_simulated_group(int size, int rank, const SimulatedPeers& peers,
                                                     const NetworkRates& rates) {
  return std::make_unique<SimulatedGroup>(all_of(size), rank, rates,
                                          std::make_unique<Together>(peers, SimulatedRanks::Key()));
}

std::shared_ptr<SimMeeting> SimulatedRanks::meeting(const Key& key, std::span<const int> members) {
  Open& open = open_[key];
  if (open.meeting == nullptr) {
    const auto exist =
        std::count_if(members.begin(), members.end(), [&](int member) { return exist_.count(member) > 0; });
    open.meeting = std::make_shared<SimMeeting>(SimMeeting{.expected = static_cast<int>(exist)});
  }
  std::shared_ptr<SimMeeting> found = open.meeting;
  if (++open.asked == found->expected) open_.erase(key);
  return found;
}

}  // namespace strata
