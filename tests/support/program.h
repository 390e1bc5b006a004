#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace strata::test {

/// How a program ended and what it said.
struct ProgramResult {
  int exit_code = -1;  ///< -1: a signal ended it
  int signal = 0;      ///< the one that did
  bool timed_out = false;
  std::string out, err;
  std::string output() const { return out + err; }
};

/// Far above what any program of the tests takes; ThreadSanitizer makes them some twenty times slower.
#if defined(__SANITIZE_THREAD__)
inline constexpr std::chrono::seconds kProgramLimit{280};
#else
inline constexpr std::chrono::seconds kProgramLimit{60};
#endif

/// What surrounds a program. Its standard input is /dev/null.
struct ProgramOptions {
  std::string cwd;
  std::vector<std::string> environment;  ///< "NAME=value", beside PATH, HOME and TMPDIR alone
  enum class Out : std::uint8_t { pipe, terminal, full, closed, broken_pipe } out = Out::pipe;
  std::function<bool()>
      before_exec;  ///< in the child: limits, user, filters. False: the child exits with kRefused
  std::chrono::seconds limit = kProgramLimit;  ///< after that it is killed, and timed_out says so
};
constexpr int kRefused = 99;

/// A program that runs beside the test. One thread. The destructor kills what still runs.
class RunningProgram {
 public:
  RunningProgram(const std::string& path, std::vector<std::string> arguments, const ProgramOptions& options);
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  /// Until it has said `text` on standard output: true. Until it ended or the limit: false.
  bool wait_for(const std::string& text);
  /// For so long, or until it ends.
  void wait_for(std::chrono::microseconds time);
  void send(int signal) const;
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
