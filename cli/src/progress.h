#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include <strata/train/observer.h>

namespace strata::cli {

enum class ProgressStyle : std::uint8_t {
  bar,    ///< one line on a terminal, redrawn at every step
  plain,  ///< one line every N steps, so that logs stay readable
  none,
};
/// `setting`: log.progress. "auto" is a bar on a terminal that can move its cursor, and plain lines
/// elsewhere.
ProgressStyle progress_style(std::string_view setting, bool is_terminal, bool is_dumb) noexcept;

struct ProgressOptions {
  ProgressStyle style = ProgressStyle::plain;
  std::int64_t every = 10;  ///< steps between plain lines
  bool colour = false;      ///< false if NO_COLOR is set
  int width = 80;           ///< columns of the terminal
  bool terminal = false;    ///< lines are shown as terminal_text() has them
};

/// Options for a stream: the style as above, no colour if NO_COLOR is set and not empty, no bar if TERM is
/// "dumb". `environment`: "NAME=value". `width`: columns of the terminal; 0: unknown.
ProgressOptions progress_options(std::string_view setting, std::int64_t every, bool is_terminal, int width,
                                 std::span<const std::string> environment) noexcept;

/// The output of the renderer. Tests provide their own.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  virtual void write(std::string_view text) noexcept = 0;
};
/// Writes to a C stream and flushes after each write. Output that cannot be written is dropped.
class StreamSink final : public ProgressSink {
 public:
  explicit StreamSink(std::FILE* stream) : stream_(stream) {}
  void write(std::string_view text) noexcept override;

 private:
  std::FILE* stream_;
};

/// Shows the progress of a run. update() does not allocate: it formats into a buffer on the stack. Not
/// thread-safe.
class Progress {
 public:
  Progress(ProgressSink& sink, ProgressOptions options) noexcept : sink_(sink), options_(options) {}
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const StepProgress& step) noexcept;
  /// Prints a line that stays, such as a text sample; the bar continues below it.
  void line(std::string_view text) noexcept;
  /// Ends the line of the bar. Further calls do nothing.
  void finish() noexcept;

 private:
  void draw_bar(const StepProgress& step) noexcept;
  void draw_line(const StepProgress& step) noexcept;

  ProgressSink& sink_;
  ProgressOptions options_;
  bool bar_open_ = false;
};

}  // namespace strata::cli
