#include <strata/runtime/signals.h>

#include <cerrno>
#include <cstring>

#include <csignal>
#include <unistd.h>

#include <strata/runtime/str.h>

namespace strata {
namespace {

// A handler reaches nothing but globals. Lock-free atomics are what it may touch; they carry no other data,
// so their order does not matter.
std::atomic<int> g_signal{0};
std::atomic<bool> g_installed{false};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void strata_on_signal(int number) {
  int expected = 0;
  if (!g_signal.compare_exchange_strong(expected, number)) ::_exit(128 + number);
}

class ProcessSignals final : public Signals {
 public:
  ~ProcessSignals() override {
    if (took_int_) ::sigaction(SIGINT, &old_int_, nullptr);
    if (took_term_) ::sigaction(SIGTERM, &old_term_, nullptr);
    g_signal.store(0);
    g_installed.store(false);
  }

  Status install() {
    struct sigaction action {};
    action.sa_handler = &strata_on_signal;
    action.sa_flags = SA_RESTART;  // the flag is polled; interrupted system calls would only spread EINTR
    ::sigemptyset(&action.sa_mask);
    took_int_ = ::sigaction(SIGINT, &action, &old_int_) == 0;
    took_term_ = took_int_ && ::sigaction(SIGTERM, &action, &old_term_) == 0;
    if (took_term_) return Status::ok();
    return Status::error(Code::internal, str("sigaction: ", std::strerror(errno)));
  }

  int signal_number() const noexcept override { return g_signal.load(std::memory_order_relaxed); }

 private:
  struct sigaction old_int_ {
  }, old_term_{};
  bool took_int_ = false, took_term_ = false;
};

}  // namespace

Result<std::unique_ptr<Signals>> install_signals() {
  if (g_installed.exchange(true))
    return Status::error(Code::invalid, "the signal handlers are installed already");
  auto signals = std::make_unique<ProcessSignals>();
  STRATA_TRY(signals->install());
  return std::unique_ptr<Signals>(std::move(signals));
}

}  // namespace strata
