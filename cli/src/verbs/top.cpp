#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <strata/report/live_text.h>
#include <strata/runtime/str.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

// A run holds a lock on the file .lock of its folder, which is how processes that run one are found.
std::vector<std::string> running_runs() {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& process : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    for (const auto& open : fs::directory_iterator(process.path() / "fd", ignored)) {
      const fs::path file = fs::read_symlink(open.path(), ignored);
      if (file.filename() == ".lock" && fs::exists(file.parent_path() / "config.resolved.toml", ignored))
        found.push_back(file.parent_path());
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

volatile std::sig_atomic_t stopped = 0;
void stop(int) { stopped = 1; }

/// The terminal without echo and with a screen of its own, as it was when this is destroyed.
class Terminal {
 public:
  explicit Terminal(std::FILE* out) : out_(out) {
    known_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    if (known_) ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, &stop);
    print_exact(out_, "\x1b[?1049h\x1b[?25l");
    std::fflush(out_);
  }
  ~Terminal() {
    print_exact(out_, "\x1b[?25h\x1b[?1049l");
    std::fflush(out_);
    if (known_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  LiveScreen screen() const {
    winsize size{};
    LiveScreen screen{.colours = std::getenv("NO_COLOR") == nullptr};
    if (::ioctl(::fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      screen.columns = size.ws_col;
      screen.rows = size.ws_row;
    }
    return screen;
  }
  /// Waits so long, or until a key is pressed or the window changes; returns the key, or 0.
  char wait(int ms) {
    pollfd input{has_input_ ? STDIN_FILENO : -1, POLLIN, 0};  // poll() only waits for a negative one
    if (::poll(&input, 1, ms) <= 0) return 0;
    char key = 0;
    const ::ssize_t n = ::read(STDIN_FILENO, &key, 1);
    if (n == 1) return key;
    // The input is closed, or was never open: it would be there for ever.
    has_input_ = n < 0 && (errno == EINTR || errno == EAGAIN);
    return wait(ms);
  }
  void show(const std::string& text) const {
    std::string framed = "\x1b[H";
    for (const char c : text) framed += c == '\n' ? std::string("\x1b[K\n") : std::string(1, c);
    print_exact(out_, framed + "\x1b[K\x1b[J");
    std::fflush(out_);
  }

 private:
  std::FILE* out_;
  termios before_{};
  bool known_ = false, has_input_ = true;
};

// All runs that are watched, one below the other.
Result<std::string> screen_of(const std::vector<std::string>& folders, const LiveScreen& screen) {
  std::string text;
  LiveScreen part = screen;
  part.rows = std::max(
      3, (screen.rows - 1) / std::max(1, static_cast<int>(folders.size())) - (folders.size() > 1 ? 1 : 0));
  for (const std::string& folder : folders) {
    STRATA_TRY_ASSIGN(const RunRecord run, read_recent_steps(posix_io(), folder));
    text += str(text.empty() ? "" : "\n\n", live_text(run, part));
  }
  return text + "\nq quits";
}

Status watch(const Args& args, const std::vector<std::string>& folders) {
  Terminal terminal(args.out);
  while (stopped == 0) {
    STRATA_TRY_ASSIGN(const std::string text, screen_of(folders, terminal.screen()));
    terminal.show(text);
    const char key = terminal.wait(static_cast<int>(1000 * args.interval_s));
    if (key == 'q' || key == 'Q' || key == '\x1b') break;
  }
  return {};
}

// A line for each run, and again as long as one of them goes on.
Status print_lines(const Args& args, const std::vector<std::string>& folders) {
  for (;;) {
    bool goes_on = false;
    for (const std::string& folder : folders) {
      STRATA_TRY_ASSIGN(const RunRecord run, read_recent_steps(posix_io(), folder));
      print(args.out, live_line(run) + "\n");
      goes_on = goes_on || !run.has_ended;
    }
    std::fflush(args.out);
    if (!goes_on || args.once) return {};
    std::this_thread::sleep_for(std::chrono::duration<double>(args.interval_s));
  }
}

Status top(const Args& args) {
  const std::vector<std::string> folders = args.items.empty() ? running_runs() : args.items;
  if (folders.empty())
    return Status::error(
        Code::not_found,
        "no run of this user is running on this machine; strata top RUN shows one that has ended");
  for (const std::string& folder : folders) STRATA_TRY(read_recent_steps(posix_io(), folder).status());
  const char* const kind = std::getenv("TERM");
  const bool plain =
      args.once || !is_terminal(args.out) || kind == nullptr || std::string_view(kind) == "dumb";
  return plain ? print_lines(args, folders) : watch(args, folders);
}

}  // namespace

int run_top(const Args& args) {
  const Status status = top(args);
  return status.is_ok() ? static_cast<int>(kExitOk) : print_error(args, "top", status);
}

}  // namespace strata::cli
