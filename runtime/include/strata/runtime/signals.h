#pragma once

#include <atomic>
#include <memory>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata {

/// Whether the process has been asked to stop. Every long-running loop polls it; thread-safe, costs one load.
class Signals {
 public:
  virtual ~Signals() = default;
  /// Once true, stays true.
  bool stop_requested() const noexcept { return signal_number() != 0; }
  /// The signal that requested the stop (SIGINT, SIGTERM, SIGHUP, SIGUSR1); 0 if there was none.
  virtual int signal_number() const noexcept = 0;
  /// Sets the line that the first signal prints to standard error immediately: what is finished before
  /// stopping, and what another signal would do. At most 255 bytes; called by one thread; allocates nothing.
  virtual void set_answer(std::string_view) noexcept {}
};

/// Handles SIGINT, SIGTERM, SIGHUP and SIGUSR1 while the returned object lives. The first signal sets the
/// flag and prints the answer; a second SIGINT or SIGTERM ends the process immediately with exit code 128 +
/// its number. SIGHUP never does that, since a closing terminal sends it more than once, and it stays ignored
/// if it already was (nohup). Nor does SIGUSR1, which Slurm sends before a job's time is up, and which mpirun
/// forwards where it would kill the ranks for a SIGTERM. SIGINT is handled even if it was ignored: shells
/// ignore it for commands started with `&`, and `kill -INT` must still stop such a run at a point it can
/// resume from. Errors: `invalid` while another such object lives.
Result<std::unique_ptr<Signals>> install_signals();

/// Signals set by code: for tests, and for callers that stop a run themselves.
class ManualSignals final : public Signals {
 public:
  void request_stop(int number) noexcept { number_.store(number, std::memory_order_relaxed); }
  int signal_number() const noexcept override { return number_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int> number_{0};
};

}  // namespace strata
