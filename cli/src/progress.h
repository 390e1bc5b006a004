#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <string>
#include <string_view>

namespace strata::cli {

enum class ProgressStyle : std::uint8_t {
  bar,    ///< one line, drawn again and again, on a terminal
  plain,  ///< a line every N steps: logs stay readable
  none,
};
/// `setting` is log.progress; auto is a bar on a terminal that can move its cursor, plain lines elsewhere.
ProgressStyle progress_style(std::string_view setting, bool is_terminal, bool is_dumb) noexcept;

struct ProgressOptions {
  ProgressStyle style = ProgressStyle::plain;
  std::int64_t every = 10;  ///< steps between plain lines
  bool colour = false;      ///< false where NO_COLOR is set
  int width = 80;           ///< columns of the terminal
};

/// Options for a stream: the style as above, no colour where NO_COLOR is set to anything, no bar where TERM
/// is "dumb". `environment` is "NAME=value"; `width` is the terminal's, 0 where it is not known.
ProgressOptions progress_options(std::string_view setting, std::int64_t every, bool is_terminal, int width,
                                 std::span<const std::string> environment) noexcept;

/// What one step reports.
struct ProgressStep {
  std::int64_t step = 0;  ///< from 1
  std::int64_t steps = 0;
  double loss = 0;
  double tokens_per_s = 0;
  std::uint64_t device_bytes = 0, pinned_bytes = 0, nvme_bytes = 0;
  double elapsed_s = 0;
  double max_time_s = std::numeric_limits<double>::infinity();
  std::int64_t first_step = 0;  ///< done before `elapsed_s` began: of a resumed run
};

/// Where the renderer writes; tests own one.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  virtual void write(std::string_view text) noexcept = 0;
};
/// A C stream, flushed after each write; what cannot be written is dropped.
class StreamSink final : public ProgressSink {
 public:
  explicit StreamSink(std::FILE* stream) : stream_(stream) {}
  void write(std::string_view text) noexcept override;

 private:
  std::FILE* stream_;
};

/// Shows how far a run is. update() allocates nothing: it formats into a buffer of its own. One thread.
class Progress {
 public:
  Progress(ProgressSink& sink, ProgressOptions options) noexcept : sink_(sink), options_(options) {}
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const ProgressStep& step) noexcept;
  /// A line that stays, such as a text sample; the bar moves below it.
  void line(std::string_view text) noexcept;
  /// Ends the bar's line. Again: nothing.
  void finish() noexcept;

 private:
  void draw_bar(const ProgressStep& step) noexcept;
  void draw_line(const ProgressStep& step) noexcept;

  ProgressSink& sink_;
  ProgressOptions options_;
  bool bar_open_ = false;
};

}  // namespace strata::cli
