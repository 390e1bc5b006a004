// The pool behind the same seam where oneTBB cannot run: under ThreadSanitizer, which must see every lock.
#include <strata/runtime/thread_pool.h>

#include <sched.h>

#include <thread>
#include <vector>

#include <strata/runtime/str.h>
#include <strata/runtime/thread_annotations.h>

namespace strata {
namespace {

class JthreadPool final : public ThreadPool {
 public:
  explicit JthreadPool(int threads) : threads_(threads) {
    for (int i = 1; i < threads; ++i)
      workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
  ~JthreadPool() override {
    for (std::jthread& worker : workers_) worker.request_stop();
    {
      const MutexLock lock(mutex_);
      wake_.notify_all();
    }
  }
  int threads() const noexcept override { return threads_; }

 protected:
  void run(std::int64_t n, Function function, const void* context) override {
    Job job{function, context, n, 0, n, nullptr};
    if (n <= 0) return;
    {
      const MutexLock lock(mutex_);
      job.below = top_;
      top_ = &job;
      wake_.notify_all();
    }
    while (step(&job)) {
    }
    const MutexLock lock(mutex_);
    while (job.left > 0) done_.wait(mutex_);
    for (Job** at = &top_; *at != nullptr; at = &(*at)->below)
      if (*at == &job) {
        *at = job.below;
        break;
      }
  }

 private:
  struct Job {
    Function function;
    const void* context;
    std::int64_t n, next, left;
    Job* below;
  };

  // Runs one item of `only`, or of any job when null; false when there was none to take.
  bool step(Job* only) STRATA_EXCLUDES(mutex_) {
    Job* job = nullptr;
    std::int64_t i = 0;
    {
      const MutexLock lock(mutex_);
      for (job = only != nullptr ? only : top_; job != nullptr && job->next == job->n; job = job->below)
        if (only != nullptr) return false;
      if (job == nullptr) return false;
      i = job->next++;
    }
    job->function(job->context, i);
    const MutexLock lock(mutex_);
    if (--job->left == 0) done_.notify_all();
    return true;
  }

  void work(const std::stop_token& stop) noexcept {
    while (!stop.stop_requested()) {
      if (step(nullptr)) continue;
      const MutexLock lock(mutex_);
      bool idle = true;
      for (Job* job = top_; job != nullptr; job = job->below) idle = idle && job->next == job->n;
      if (idle && !stop.stop_requested()) wake_.wait(mutex_);
    }
  }

  const int threads_;
  Mutex mutex_;
  Condition wake_, done_;
  Job* top_ STRATA_GUARDED_BY(mutex_) = nullptr;
  std::vector<std::jthread> workers_;
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
  return std::unique_ptr<ThreadPool>(std::make_unique<JthreadPool>(threads == 0 ? usable_cores() : threads));
}

}  // namespace strata
