#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <strata/runtime/thread_annotations.h>
#include <strata/infer/generation_queue.h>

namespace strata {

/// How long something took: the number of times up to each limit, and their sum.
class TimeHistogram {
 public:
  /// `limits` in ascending order, in seconds; they outlive it.
  explicit TimeHistogram(std::span<const double> limits) : limits_(limits), counts_(limits.size() + 1) {}
  void add(double seconds) noexcept;
  /// Its lines in the text format of Prometheus. `label`: name and value, as `model_name="tiny"`.
  std::string text(std::string_view name, std::string_view label) const;

 private:
  std::span<const double> limits_;
  std::vector<std::uint64_t> counts_;  // times up to each limit and above the one before; last: above all
  double sum_ = 0;
};

/// Counts what a server has done. Used by any thread.
class ServeMetrics {
 public:
  /// Why an answer has ended, in vLLM's words.
  enum class AnswerEnd : std::uint8_t { stop, length, abort };
  ServeMetrics();
  /// A request has ended; `status`: of HTTP, 499 if the client left before.
  void count(const std::string& endpoint, int status, double seconds) noexcept;
  /// An answer has its first token, so long after it was asked for.
  void first_token(double seconds) noexcept;
  /// An answer has ended, so long after it was asked for.
  void answer_ended(AnswerEnd how, double seconds) noexcept;
  /// All figures in the text format of Prometheus: strata's names, and vLLM's for what both measure, with the
  /// label model_name.
  std::string text(const GenerationQueue::Load& load, std::size_t places, std::string_view model) const;

 private:
  struct Requests {
    std::uint64_t n = 0;
    double seconds = 0;
  };
  std::string vllm_text(const GenerationQueue::Load& load, std::string_view model) const;

  mutable Mutex mutex_;
  std::map<std::pair<std::string, int>, Requests> requests_ STRATA_GUARDED_BY(mutex_);
  TimeHistogram first_tokens_ STRATA_GUARDED_BY(mutex_), answers_ STRATA_GUARDED_BY(mutex_);
  std::array<std::uint64_t, 3> ends_ STRATA_GUARDED_BY(mutex_){};  // indexed by AnswerEnd
};

}  // namespace strata
