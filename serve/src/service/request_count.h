#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include <strata/runtime/clock.h>
#include <strata/serve/serve_metrics.h>

namespace strata::detail {

/// One request: in flight for as long as this lives, and counted once, at its end or before. Used by the
/// client's thread.
class RequestCount {
 public:
  RequestCount(std::shared_ptr<ServeMetrics> metrics, std::shared_ptr<std::atomic<std::size_t>> in_flight,
               std::string endpoint)
      : metrics_(std::move(metrics)),
        in_flight_(std::move(in_flight)),
        endpoint_(std::move(endpoint)),
        begin_ns_(SteadyClock().now_ns()) {
    ++*in_flight_;
  }
  ~RequestCount() {
    count();
    --*in_flight_;
  }
  RequestCount(const RequestCount&) = delete;
  RequestCount& operator=(const RequestCount&) = delete;

  /// To be called before the end of a stream is sent: who has read it finds the request in the figures.
  void count() noexcept {
    if (!std::exchange(counted_, true))
      metrics_->count(endpoint_, status, static_cast<double>(SteadyClock().now_ns() - begin_ns_) * 1e-9);
  }

  int status = 200;

 private:
  const std::shared_ptr<ServeMetrics> metrics_;
  const std::shared_ptr<std::atomic<std::size_t>> in_flight_;
  const std::string endpoint_;
  const std::int64_t begin_ns_;
  bool counted_ = false;
};

}  // namespace strata::detail
