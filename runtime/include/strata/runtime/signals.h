#pragma once

#include <atomic>
#include <memory>

#include <strata/runtime/status.h>

namespace strata {

/// Whether someone asked the process to stop. Every loop that runs long looks here; thread-safe, costs one
/// load.
class Signals {
 public:
  virtual ~Signals() = default;
  /// Stays true once it is.
  bool stop_requested() const noexcept { return signal_number() != 0; }
  /// The signal that asked (SIGINT, SIGTERM), 0 while none has.
  virtual int signal_number() const noexcept = 0;
};

/// Takes SIGINT and SIGTERM over for as long as the object lives: the first only sets the flag, the second
/// ends the process at once with 128 + its number. A signal that was ignored is taken too, since shells
/// ignore SIGINT for what they start with `&`, and `kill -INT` must still stop a run at a point it can resume
/// from. Errors: `invalid` while another one lives.
Result<std::unique_ptr<Signals>> install_signals();

/// For tests and for callers that stop a run themselves.
class ManualSignals final : public Signals {
 public:
  void request_stop(int number) noexcept { number_.store(number, std::memory_order_relaxed); }
  int signal_number() const noexcept override { return number_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int> number_{0};
};

}  // namespace strata
