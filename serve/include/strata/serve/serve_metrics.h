#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include <strata/runtime/thread_annotations.h>
#include <strata/infer/generation_queue.h>

namespace strata {

/// Counts what a server has done. Used by any thread.
class ServeMetrics {
 public:
  /// A request has ended; `status`: of HTTP, 499 if the client left before.
  void count(const std::string& endpoint, int status, double seconds) noexcept;
  /// All figures in the text format of Prometheus.
  std::string text(const GenerationQueue::Load& load, std::size_t places) const;

 private:
  struct Requests {
    std::uint64_t n = 0;
    double seconds = 0;
  };
  mutable Mutex mutex_;
  std::map<std::pair<std::string, int>, Requests> requests_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata
