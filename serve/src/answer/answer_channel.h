#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>

#include <strata/runtime/status.h>
#include <strata/runtime/thread_annotations.h>
#include <strata/serve/api_response.h>

namespace strata::detail {

/// A part of one of a request's answers that has become certain.
struct AnswerPiece {
  ApiChoice choice;
  std::size_t tokens = 0;  ///< generated for it
  Status status;           ///< an error ends the answer without a finish reason
  bool is_last() const noexcept { return !status.is_ok() || !choice.finish_reason.empty(); }
};

/// Pieces of the answers to one request, on their way from the thread of the batcher to the one that serves
/// the client. It never has more pieces than tokens were asked for.
class AnswerChannel {
 public:
  /// Called by the batcher's thread.
  void push(AnswerPiece piece);
  /// An answer will not end, since there is no memory to tell why.
  void abandon() noexcept;
  bool is_cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }

  /// Called by the client's thread. Nullopt if there was no piece in `limit`.
  std::optional<AnswerPiece> pop(std::chrono::milliseconds limit);
  /// Nobody waits for the answers any more.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }

 private:
  Mutex mutex_;
  Condition changed_;
  std::deque<AnswerPiece> pieces_ STRATA_GUARDED_BY(mutex_);
  bool abandoned_ STRATA_GUARDED_BY(mutex_) = false;
  std::atomic<bool> cancelled_{false};
};

}  // namespace strata::detail
