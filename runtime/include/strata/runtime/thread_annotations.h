#pragma once

#include <condition_variable>
#include <mutex>

// Annotations for clang's -Wthread-safety; empty for other compilers.
#if defined(__clang__)
#define STRATA_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define STRATA_THREAD_ATTRIBUTE(x)
#endif
#define STRATA_CAPABILITY(x) STRATA_THREAD_ATTRIBUTE(capability(x))
#define STRATA_SCOPED_CAPABILITY STRATA_THREAD_ATTRIBUTE(scoped_lockable)
#define STRATA_GUARDED_BY(x) STRATA_THREAD_ATTRIBUTE(guarded_by(x))
#define STRATA_REQUIRES(...) STRATA_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define STRATA_EXCLUDES(...) STRATA_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define STRATA_ACQUIRE(...) STRATA_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define STRATA_RELEASE(...) STRATA_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define STRATA_NO_THREAD_SAFETY_ANALYSIS STRATA_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace strata {

/// std::mutex annotated for clang's thread-safety analysis.
class STRATA_CAPABILITY("mutex") Mutex {
 public:
  void lock() STRATA_ACQUIRE() { mutex_.lock(); }
  void unlock() STRATA_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class STRATA_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) STRATA_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() STRATA_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// A condition variable for a Mutex. Wait in a loop over the guarded state, which the analysis can follow:
/// `MutexLock lock(mutex_); while (queue_.empty()) cond_.wait(mutex_);`
class Condition {
 public:
  void wait(Mutex& mutex) STRATA_REQUIRES(mutex) { condition_.wait(mutex); }
  template <class Duration>
  std::cv_status wait_for(Mutex& mutex, Duration limit) STRATA_REQUIRES(mutex) {
    return condition_.wait_for(mutex, limit);
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

}  // namespace strata
