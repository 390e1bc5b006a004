#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>

#include <strata/runtime/alloc_counter.h>

#include "affinity.h"
#include "thread_pools.h"

namespace strata::detail {
namespace {

// Keeps the workers that enter an arena on its CPUs. oneTBB lends its workers to any arena of the process, so
// they get back what they had. A caller is not ours to move.
class KeepOnCpus final : public tbb::task_scheduler_observer {
 public:
  KeepOnCpus(tbb::task_arena& arena, std::vector<int> cpus)
      : task_scheduler_observer(arena), cpus_(std::move(cpus)), before_(affinity_mask()) {
    observe(true);
  }
  ~KeepOnCpus() override { observe(false); }
  KeepOnCpus(const KeepOnCpus&) = delete;
  KeepOnCpus& operator=(const KeepOnCpus&) = delete;

  // Refused: a matter of speed only, and the share was made where binding works.
  void on_scheduler_entry(bool is_worker) override {
    if (is_worker) (void)bind_thread(::pthread_self(), cpus_);
  }
  void on_scheduler_exit(bool is_worker) override {
    if (is_worker && !before_.empty()) (void)bind_thread(::pthread_self(), before_);
  }

 private:
  const std::vector<int> cpus_, before_;
};

class TbbPool final : public ThreadPool {
 public:
  // More threads than cores only where asked for: without the limit oneTBB would take fewer and say so on
  // stderr.
  explicit TbbPool(const CoreShare& share)
      : limit_(tbb::global_control::max_allowed_parallelism,
               std::max(static_cast<std::size_t>(share.threads()),
                        tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism))),
        arena_(share.threads(), 1) {
    if (!share.bound) return;
    nodes_.push_back(share.nodes.front().index);
    keep_ = std::make_unique<KeepOnCpus>(arena_, share.nodes.front().cpus);
  }
  int threads() const noexcept override { return arena_.max_concurrency(); }
  std::span<const int> nodes() const noexcept override { return nodes_; }

 protected:
  void run(std::int64_t n, Function function, const void* context, Takers /*takers*/) override {
    if (n <= 0) return;
    if (n == 1 || threads() == 1) {
      for (std::int64_t i = 0; i < n; ++i) function(context, i);
      return;
    }
    const ThirdPartyScope scope;  // oneTBB allocates its tasks
    arena_.execute([&] {
      tbb::parallel_for(
          tbb::blocked_range<std::int64_t>(0, n, 1),
          [&](const tbb::blocked_range<std::int64_t>& range) {
            const OwnCodeScope own;
            for (std::int64_t i = range.begin(); i != range.end(); ++i) function(context, i);
          },
          tbb::simple_partitioner());
    });
  }

 private:
  tbb::global_control limit_;
  tbb::task_arena arena_;
  std::vector<int> nodes_;
  std::unique_ptr<KeepOnCpus> keep_;
};

}  // namespace

std::unique_ptr<ThreadPool> create_stealing_pool(const CoreShare& share) {
  return std::make_unique<TbbPool>(share);
}

}  // namespace strata::detail
