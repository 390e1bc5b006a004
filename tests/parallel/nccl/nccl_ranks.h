#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <strata/parallel/nccl_group.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/threads/thread_pool.h>

#include "nccl/nccl_group.h"
#include "parallel/ranks.h"
#include "support/fault_backend.h"
#include "support/nccl/fake_nccl.h"

namespace strata::test {

/// The controls of libfake_nccl.so, which is loaded once.
const FakeNccl& fake_nccl();

/// Options by which groups use the fake, and tests need not wait long.
NcclOptions fake_nccl_options();

/// A rank's backend, and what NCCL needs to know of it. Defined by each program: a host backend, or the CUDA
/// backend over a fake CUDA runtime.
struct RankDevice {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Clock> clock;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<detail::NcclDevice> device;
  bool on_fake_cuda = false;
};
RankDevice make_rank_device(int rank, StreamSchedule schedule);

/// Ranks as threads, each with a backend of its own, as with one GPU for each.
class NcclRanks final : public Ranks {
 public:
  NcclRanks(int size, StreamSchedule schedule, const NcclOptions& options = fake_nccl_options());
  using Body = std::function<Status(Rank&)>;
  std::vector<Status> run(const Body& body) override {
    return run(body, [](int) {});
  }
  /// `before(rank)` runs on the thread of each rank before the group is created; an error of its creation is
  /// the outcome of the rank.
  std::vector<Status> run(const Body& body, const std::function<void(int)>& before);
  void run_worlds(const std::function<void(World&)>& body) override;
  bool names_who_left() const override { return false; }
  bool on_fake_cuda() const override { return on_fake_cuda_; }
  /// The backend of the rank's group; the rank itself does not use it.
  FaultBackend& faults(int rank) { return *faults_[static_cast<std::size_t>(rank)]; }

 private:
  Status run_rank(World& world, const Body& body, std::unique_ptr<ProcessGroup>& group);

  const int size_;
  bool on_fake_cuda_ = false;
  const NcclOptions options_;
  std::vector<RankDevice> devices_;
  std::vector<std::unique_ptr<FaultBackend>> faults_;
};

}  // namespace strata::test
