#include "progress.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/core.h>

#include <strata/runtime/figure_text.h>
#include <strata/runtime/terminal_text.h>

namespace strata::cli {
namespace {

/// Text in a fixed buffer; text beyond its end is dropped.
template <std::size_t N>
class Line {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    const auto result =
        fmt::format_to_n(text_.data() + size_, N - size_, format, std::forward<Args>(args)...);
    size_ = std::min(N, size_ + result.size);
  }
  void cut(std::size_t size) { size_ = std::min(size_, size); }
  std::size_t size() const { return size_; }
  std::string_view view() const { return {text_.data(), size_}; }

 private:
  std::array<char, N> text_;
  std::size_t size_ = 0;
};

/// Seconds until the last step or the time limit, whichever comes first; negative if unknown.
double remaining_s(const StepProgress& s) {
  if (s.step <= s.first_step || !(s.elapsed_s >= 0)) return -1;
  const double by_steps = static_cast<double>(std::max<std::int64_t>(0, s.steps - s.step)) * s.elapsed_s /
                          static_cast<double>(s.step - s.first_step);
  return std::max(0.0, std::min(by_steps, s.max_time_s - s.elapsed_s));
}

template <std::size_t N>
void add_duration(Line<N>& line, double seconds) {
  if (!(seconds >= 0) || seconds > 3.6e8) return line.add("?");
  const auto total = static_cast<std::int64_t>(std::llround(seconds));
  if (total >= 3600)
    line.add("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
  else
    line.add("{}:{:02}", total / 60, total % 60);
}

template <std::size_t N>
void add_figures(Line<N>& line, const StepProgress& s) {
  line.add("  loss {:.4f}", s.loss);
  for (std::size_t i = 0; i < s.n_of_task; ++i)
    line.add("  {} {}", s.of_task[i].name, Figure(s.of_task[i].value).view());
  line.add("  {} tok/s", Figure(s.tokens_per_s).view());
  const auto add_tier = [&](const char* name, std::uint64_t bytes) {
    if (bytes > 0) line.add("  {} {}", name, Figure(static_cast<double>(bytes), "B").view());
  };
  add_tier("device", s.device_bytes);
  add_tier("pinned", s.pinned_bytes);
  add_tier("nvme", s.nvme_bytes);
}

}  // namespace

ProgressStyle progress_style(std::string_view setting, bool is_terminal, bool is_dumb) noexcept {
  if (setting == "none") return ProgressStyle::none;
  if (setting == "bar") return ProgressStyle::bar;
  if (setting == "plain") return ProgressStyle::plain;
  return is_terminal && !is_dumb ? ProgressStyle::bar : ProgressStyle::plain;
}

ProgressOptions progress_options(std::string_view setting, std::int64_t every, bool is_terminal, int width,
                                 std::span<const std::string> environment) noexcept {
  bool no_colour = false, dumb = false;
  for (const std::string& variable : environment) {
    no_colour |= variable.starts_with("NO_COLOR=") && variable.size() > 9;  // no-color.org: set and not empty
    dumb |= variable == "TERM=dumb";
  }
  return {progress_style(setting, is_terminal, dumb), every, is_terminal && !no_colour && !dumb,
          width > 0 ? width : 80, is_terminal};
}

void StreamSink::write(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
}

void Progress::update(const StepProgress& step) noexcept {
  if (options_.style == ProgressStyle::bar) return draw_bar(step);
  const bool due =
      step.step == 1 || step.step == step.steps || step.step % std::max<std::int64_t>(1, options_.every) == 0;
  if (options_.style == ProgressStyle::plain && due) draw_line(step);
}

void Progress::draw_line(const StepProgress& s) noexcept {
  Line<320> line;
  line.add("step {}/{}", s.step, s.steps);
  add_figures(line, s);
  line.add("  eta ");
  add_duration(line, remaining_s(s));
  line.cut(319);
  line.add("\n");
  sink_.write(line.view());
}

void Progress::draw_bar(const StepProgress& s) noexcept {
  constexpr int kCells = 16;
  const double done = s.steps > 0 ? static_cast<double>(s.step) / static_cast<double>(s.steps) : 0;
  const int full = static_cast<int>(std::clamp(done, 0.0, 1.0) * kCells);
  Line<320> text;
  text.add("[{:#<{}}{:.<{}}]", "", full, "", kCells - full);
  const std::size_t bar_size = text.size();
  text.add(" {}/{}  eta ", s.step, s.steps);  // the important parts first: a narrow terminal cuts the end
  add_duration(text, remaining_s(s));
  add_figures(text, s);
  text.cut(static_cast<std::size_t>(std::max(1, options_.width - 1)));  // using the last column would wrap
  Line<400> line;
  const std::string_view view = text.view();
  if (options_.colour && view.size() >= bar_size)
    line.add("\r\x1b[32m{}\x1b[0m{}\x1b[K", view.substr(0, bar_size), view.substr(bar_size));
  else
    line.add("\r{}\x1b[K", view);
  sink_.write(line.view());
  bar_open_ = true;
}

void Progress::line(std::string_view text) noexcept {
  if (bar_open_) sink_.write("\r\x1b[K");
  bar_open_ = false;
  sink_.write(options_.terminal ? terminal_text(text) : std::string(text));
  sink_.write("\n");
}

void Progress::finish() noexcept {
  if (bar_open_) sink_.write("\n");
  bar_open_ = false;
}

}  // namespace strata::cli
