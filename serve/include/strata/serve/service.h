#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/signals.h>
#include <strata/runtime/thread_annotations.h>
#include <strata/serve/api_call.h>
#include <strata/serve/api_error.h>
#include <strata/serve/serve_metrics.h>
#include <strata/serve/served_model.h>
#include <strata/infer/generation_queue.h>
#include <strata/infer/json_object_constraint.h>

namespace strata {

namespace detail {
struct Ask;
struct Asked;
class RequestCount;
}  // namespace detail

/// OpenAI's API over one model: what clients ask becomes sequences of one batcher. handle() is called by as
/// many threads as there are clients; run() by the thread that owns the batcher's engine.
class Service {
 public:
  /// `max_waiting`: sequences that may wait for a place in the batch.
  Service(ServedModel model, Batcher& batcher, std::size_t max_waiting);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Answers GET /v1/models, /v1/models/NAME, /health and /metrics, and POST /v1/completions and
  /// /v1/chat/completions; the latter two wait until the answer, or the first piece of a stream, is there.
  ApiResponse handle(const ApiCall& call);
  /// The answer to a request that the transport refuses by itself; counts it. `path`: empty if it was not
  /// read.
  ApiResponse refuse(const ApiError& error, std::string_view path);

  /// Continues sequences until a stop is requested and those in the batch have ended. From then on new
  /// requests, and those that wait for a place, are refused with 503. Sequences that have not ended
  /// `drain_limit` later are cut, and their clients told so. Errors: those of the engine, which the clients
  /// have been told; what give_up() was told.
  Status run(const Signals& signals, std::optional<std::chrono::seconds> drain_limit = std::nullopt);
  /// Answers that the last run() has cut.
  std::size_t n_cut() const noexcept { return n_cut_; }
  /// Stops like a signal, because of `why`, which run() returns. From any thread.
  void give_up(const Status& why);
  /// Requests whose answers have not been sent completely.
  std::size_t n_in_flight() const noexcept { return *in_flight_; }
  const ServedModel& model() const noexcept { return model_; }
  GenerationQueue::Load load() const { return queue_.load(); }

 private:
  using Count = std::shared_ptr<detail::RequestCount>;
  ApiResponse dispatch(const ApiCall& call, const Count& count);
  ApiResponse get(std::string_view path);
  ApiResponse complete(const ApiCall& call, const Count& count);
  ApiResponse chat(const ApiCall& call, const Count& count);
  ApiResponse answer(detail::Ask ask, const ApiCall& call, const Count& count);
  std::optional<ApiError> check_count(std::size_t n_answers) const;
  ApiResult<detail::Asked> ask_batcher(const detail::Ask& ask);
  std::shared_ptr<TokenConstraint> json_object();
  std::uint64_t draw() noexcept;

  const ServedModel model_;
  std::once_flag sorts_once_;
  std::shared_ptr<const SortedTokens> sorted_tokens_;
  const std::size_t places_;
  const std::int64_t started_at_;  // Unix time
  const std::uint64_t random_;
  std::atomic<std::uint64_t> n_draws_{0};
  std::atomic<bool> stopping_{false};
  std::size_t n_cut_ = 0;  // the thread of run()
  Mutex mutex_;
  Status why_ STRATA_GUARDED_BY(mutex_);
  GenerationQueue queue_;
  // Shared with streams, which may outlive the service by the end of their last write.
  std::shared_ptr<ServeMetrics> metrics_;
  std::shared_ptr<std::atomic<std::size_t>> in_flight_;
};

}  // namespace strata
