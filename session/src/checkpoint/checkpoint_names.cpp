#include "checkpoint/checkpoint_names.h"

#include <algorithm>
#include <charconv>

#include <unistd.h>

#include <fmt/format.h>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".unfinished-";
constexpr std::string_view kReplaced = ".replaced";
constexpr std::size_t kStepDigits = 8;

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string file_of(Payload payload) { return str(to_string(payload), ".safetensors"); }

std::string folder_name(std::int64_t step) { return fmt::format("{}{:0{}}", kPrefix, step, kStepDigits); }

std::string draft_name(const std::string& folder_name) {
  return fmt::format("{}{}-{}", kUnfinished, folder_name, ::getpid());
}

std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  std::int64_t step = 0;
  if (name.size() < kStepDigits || !is_digits(name)) return std::nullopt;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), step);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return step;
}

std::optional<Draft> draft_of(std::string_view name) {
  if (!name.starts_with(kUnfinished)) return std::nullopt;
  name.remove_prefix(kUnfinished.size());
  Draft draft;
  draft.replaced = name.ends_with(kReplaced);
  if (draft.replaced) name.remove_suffix(kReplaced.size());
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || !is_digits(name.substr(dash + 1))) return std::nullopt;
  draft.folder = name.substr(0, dash);
  if (!step_of(draft.folder)) return std::nullopt;
  return draft;
}

}  // namespace strata::detail
