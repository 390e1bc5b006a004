#include <strata/runtime/thread_pool.h>

#include <sched.h>

#include <algorithm>

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <strata/runtime/alloc_counter.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

class TbbPool final : public ThreadPool {
 public:
  // More threads than cores only where asked for: without the limit oneTBB would take fewer and say so on
  // stderr.
  explicit TbbPool(int threads)
      : limit_(tbb::global_control::max_allowed_parallelism,
               std::max(static_cast<std::size_t>(threads),
                        tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism))),
        arena_(threads, 1) {}
  int threads() const noexcept override { return arena_.max_concurrency(); }

 protected:
  void run(std::int64_t n, Function function, const void* context) override {
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

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(int threads) {
  if (threads < 0 || threads > 1024)
    return Status::error(Code::invalid, str("cpu.threads is ", threads, "; it takes 0 (all) to 1024"));
  return std::unique_ptr<ThreadPool>(std::make_unique<TbbPool>(threads == 0 ? usable_cores() : threads));
}

}  // namespace strata
