#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/status.h>

#include "threads/thread_pools.h"

namespace strata::detail {
namespace {

class TbbPool final : public ThreadPool {
 public:
  // Raise the limit if more threads than cores are requested: otherwise oneTBB would use fewer and warn on
  // stderr.
  explicit TbbPool(const CoreShare& share)
      : limit_(tbb::global_control::max_allowed_parallelism,
               std::max(static_cast<std::size_t>(share.threads()),
                        tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism))),
        arena_(share.threads(), 1) {}
  int threads() const noexcept override { return arena_.max_concurrency(); }
  std::span<const int> nodes() const noexcept override { return {}; }

 protected:
  void run(std::int64_t n, Function function, const void* context, Stealing /*stealing*/) override {
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
};

// oneTBB reads the CPUs at its first use. If that throws, every later use waits forever for its end.
Status start_tbb() {
  static std::mutex mutex;
  static enum class State : std::uint8_t { unused, broken, started } state;
  const std::scoped_lock lock(mutex);
  if (state == State::broken)
    return Status::error(
        Code::out_of_memory,
        "oneTBB ran out of memory when this process first used it and cannot be used any more; "
        "start the process again");
  if (state == State::started) return Status::ok();
  state = State::broken;
  static_cast<void>(tbb::info::default_concurrency());
  state = State::started;
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> create_stealing_pool(const CoreShare& share) {
  STRATA_TRY(start_tbb());
  return std::unique_ptr<ThreadPool>(std::make_unique<TbbPool>(share));
}

}  // namespace strata::detail
