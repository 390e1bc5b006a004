#include <strata/runtime/signals.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <csignal>
#include <unistd.h>

#include <strata/runtime/str.h>

namespace strata {
namespace {

struct Answer {
  std::array<char, 256> text{};
  std::size_t n = 0;
};

// A signal handler can use only globals, and of those only lock-free atomics. Only g_answer points to other
// data: an answer is written before it is published and overwritten four answers later, when no handler can
// still be reading it.
std::atomic<int> g_signal{0};
std::atomic<int> g_ends{0};  // number of SIGINT and SIGTERM so far
std::atomic<bool> g_installed{false};
std::array<Answer, 4> g_answers;
std::atomic<const Answer*> g_answer{nullptr};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<const Answer*>::is_always_lock_free);

extern "C" void strata_on_signal(int number) {
  const int error = errno;
  int expected = 0;
  const bool first = g_signal.compare_exchange_strong(expected, number);
  const bool may_be_repeated = number == SIGHUP || number == SIGUSR1;
  if (!may_be_repeated && g_ends.fetch_add(1) > 0) ::_exit(128 + number);
  if (const Answer* answer = g_answer.load(std::memory_order_acquire); first && answer != nullptr)
    static_cast<void>(
        !::write(STDERR_FILENO, answer->text.data(), answer->n));  // fails if the terminal is closed
  errno = error;
}

class ProcessSignals final : public Signals {
 public:
  ~ProcessSignals() override {
    for (std::size_t i = 0; i < n_taken_; ++i) ::sigaction(kTaken[i], &old_[i], nullptr);
    g_answer.store(nullptr);
    g_signal.store(0);
    g_ends.store(0);
    g_installed.store(false);
  }

  Status install() {
    struct sigaction action {};
    action.sa_handler = &strata_on_signal;
    action.sa_flags = SA_RESTART;  // the flag is polled, so interrupting system calls would only spread EINTR
    ::sigemptyset(&action.sa_mask);
    for (; n_taken_ < kTaken.size(); ++n_taken_) {
      if (::sigaction(kTaken[n_taken_], &action, &old_[n_taken_]) != 0)
        return Status::error(Code::internal, str("sigaction: ", std::strerror(errno)));
      if (kTaken[n_taken_] == SIGHUP && old_[n_taken_].sa_handler == SIG_IGN)
        ::sigaction(SIGHUP, &old_[n_taken_], nullptr);
    }
    return Status::ok();
  }

  int signal_number() const noexcept override { return g_signal.load(std::memory_order_relaxed); }

  void set_answer(std::string_view text) noexcept override {
    next_ = (next_ + 1) % g_answers.size();
    Answer& answer = g_answers[next_];
    answer.n = std::min(text.size(), answer.text.size() - 1);
    std::memcpy(answer.text.data(), text.data(), answer.n);
    answer.text[answer.n++] = '\n';
    g_answer.store(&answer, std::memory_order_release);
  }

 private:
  static constexpr std::array<int, 4> kTaken = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  std::array<struct sigaction, 4> old_{};
  std::size_t n_taken_ = 0, next_ = 0;
};

}  // namespace

Result<std::unique_ptr<Signals>> install_signals() {
  if (g_installed.exchange(true))
    return Status::error(Code::invalid, "the signal handlers are already installed");
  auto signals = std::make_unique<ProcessSignals>();
  STRATA_TRY(signals->install());
  return std::unique_ptr<Signals>(std::move(signals));
}

}  // namespace strata
