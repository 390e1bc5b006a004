#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include <strata/runtime/clock.h>
#include <strata/serve/serve_metrics.h>

namespace strata::detail {

/// Counts one request for as long as it lives. Used by the client's thread.
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
    metrics_->count(endpoint_, status, static_cast<double>(SteadyClock().now_ns() - begin_ns_) * 1e-9);
    --*in_flight_;
  }
  RequestCount(const RequestCount&) = delete;
  RequestCount& operator=(const RequestCount&) = delete;

  int status = 200;

 private:
  const std::shared_ptr<ServeMetrics> metrics_;
  const std::shared_ptr<std::atomic<std::size_t>> in_flight_;
  const std::string endpoint_;
  const std::int64_t begin_ns_;
};

}  // namespace strata::detail
