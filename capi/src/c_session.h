#pragma once

#include <memory>
#include <span>
#include <vector>

#include <strata.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/session/trainer_session.h>
#include <strata/session/state_planning.h>

namespace strata::capi {

/// The object behind a handle: parameters are registered, then the session is sealed and used. Used by one
/// thread at a time.
class CSession {
 public:
  /// Errors: `invalid`, naming the option; `unsupported`.
  static Result<std::unique_ptr<CSession>> create(const strata_session_options& options);

  Status add(const strata_param& param);
  /// The plan of the registered parameters, made when first needed.
  Result<const StatePlan*> plan();
  Status seal(std::span<void* const> params);
  /// Errors: `invalid`; then no name has changed.
  Status rename(std::span<const char* const> names);
  /// Errors: `invalid` before sealing.
  Result<TrainerSession*> sealed() const;
  cpuopt::Optimizer optimizer() const noexcept { return options_.optimizer.optimizer; }

 private:
  CSession() = default;
  SessionOptions options_;
  TrainerHolds holds_ = TrainerHolds::states;
  int threads_ = 0;
  std::int64_t n_elems_ = 0;
  std::vector<TrainerParam> params_;
  std::unique_ptr<StatePlan> plan_;  // only names change once it is used
  SteadyClock clock_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<TrainerSession> session_;
};

}  // namespace strata::capi
