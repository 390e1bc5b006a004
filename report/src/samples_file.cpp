#include <strata/report/samples_file.h>

#include <algorithm>
#include <charconv>

#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::string_view kHead = "--- step ";

/// Calls `each` with every line and whether a line feed ends it.
template <class Each>
void for_lines(std::string_view text, const Each& each) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    each(at, text.substr(at, end - at), end != std::string_view::npos);
    at = end == std::string_view::npos ? text.size() : end + 1;
  }
}

bool looks_like_head(std::string_view line) {
  return line.substr(std::min(line.find_first_not_of('\\'), line.size())).starts_with(kHead);
}

std::int64_t step_of(std::string_view head) {
  std::int64_t step = 0;
  (void)std::from_chars(head.data() + kHead.size(), head.data() + head.size(), step);
  return step;
}

}  // namespace

std::string sample_block(std::int64_t step, std::string_view text) {
  std::string block = str(kHead, step, " ---\n");
  for_lines(text, [&](std::size_t, std::string_view line, bool is_whole) {
    if (looks_like_head(line)) block += '\\';
    (block += line) += is_whole ? "\n" : "";
  });
  return block + "\n\n";
}

std::vector<TextSample> read_samples(std::string_view file) {
  std::vector<TextSample> samples;
  for_lines(file, [&](std::size_t, std::string_view line, bool is_whole) {
    if (line.starts_with(kHead)) {
      if (!samples.empty() && samples.back().text.ends_with("\n")) samples.back().text.pop_back();
      samples.push_back({step_of(line), {}});
      return;
    }
    if (samples.empty()) return;
    (samples.back().text += looks_like_head(line) ? line.substr(1) : line) += is_whole ? "\n" : "";
  });
  return samples;
}

std::string_view samples_up_to(std::string_view file, std::int64_t last_step) {
  std::size_t end = file.size();
  for_lines(file, [&](std::size_t at, std::string_view line, bool) {
    if (end == file.size() && line.starts_with(kHead) && step_of(line) > last_step) end = at;
  });
  return file.substr(0, end);
}

}  // namespace strata
