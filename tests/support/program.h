#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace strata::test {

/// How a program ended and its output.
struct ProgramResult {
  int exit_code = -1;  ///< -1: ended by a signal
  int signal = 0;      ///< the signal that ended it
  bool timed_out = false;
  std::string out, err;
  std::string output() const { return out + err; }
};

/// Far longer than any test program takes; ThreadSanitizer slows programs down about twenty times.
#if defined(__SANITIZE_THREAD__)
inline constexpr std::chrono::seconds kProgramLimit{280};
#else
inline constexpr std::chrono::seconds kProgramLimit{60};
#endif

/// The environment of a program. Its standard input is /dev/null.
struct ProgramOptions {
  std::string cwd;
  std::vector<std::string> environment;  ///< "NAME=value", in addition to PATH, HOME and TMPDIR only
  enum class Out : std::uint8_t { pipe, terminal, full, closed, broken_pipe } out = Out::pipe;
  std::function<bool()> before_exec;  ///< runs in the child, to set limits, user or filters; if it returns
                                      ///< false, the child exits with kRefused
  std::chrono::seconds limit = kProgramLimit;  ///< after this time the program is killed and timed_out is set
};
constexpr int kRefused = 99;

/// A program that runs alongside the test. Used by one thread. The destructor kills it if it is still
/// running.
class RunningProgram {
 public:
  RunningProgram(const std::string& path, std::vector<std::string> arguments, const ProgramOptions& options);
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  /// Waits until the program has printed `text` to standard output and returns true; returns false if it ends
  /// or reaches the limit first.
  bool wait_for(const std::string& text);
  /// Waits for `time`, or until the program ends.
  void wait_for(std::chrono::microseconds time);
  void send(int signal) const;
  /// Its standard output so far, as far as wait_for() has read it.
  const std::string& out() const noexcept { return result_.out; }
  ProgramResult finish();

 private:
  void read_until(std::chrono::steady_clock::time_point until, const std::string* text);

  std::vector<std::string> arguments_;
  std::chrono::steady_clock::time_point limit_;
  pid_t child_ = -1;
  int out_ = -1, err_ = -1;
  ProgramResult result_;
};

inline ProgramResult run_program(const std::string& path, std::vector<std::string> arguments,
                                 const ProgramOptions& options) {
  return RunningProgram(path, std::move(arguments), options).finish();
}

}  // namespace strata::test
