#pragma once

#include <atomic>
#include <memory>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata {

/// Whether someone asked the process to stop. Every loop that runs long looks here; thread-safe, costs one
/// load.
class Signals {
 public:
  virtual ~Signals() = default;
  /// Stays true once it is.
  bool stop_requested() const noexcept { return signal_number() != 0; }
  /// The signal that asked (SIGINT, SIGTERM, SIGHUP), 0 while none has.
  virtual int signal_number() const noexcept = 0;
  /// What the first signal answers at once on standard error, in one line: what is finished first, and what
  /// another signal would do. Up to 255 bytes; one thread; allocates nothing.
  virtual void set_answer(std::string_view) noexcept {}
};

/// Takes SIGINT, SIGTERM and SIGHUP over for as long as the object lives. The first sets the flag and prints
/// the answer; a second SIGINT or SIGTERM ends the process at once with 128 + its number. SIGHUP, which a
/// closing terminal sends more than once, never does that, and stays ignored where it was (nohup). SIGINT is
/// taken also where it was ignored, since shells ignore it for what they start with `&`, and `kill -INT` must
/// still stop a run at a point it can resume from. Errors: `invalid` while another one lives.
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
