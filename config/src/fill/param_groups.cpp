#include <strata/config/param_groups.h>

#include <array>
#include <charconv>
#include <sstream>
#include <string_view>

#include <strata/runtime/config/suggest.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::array<std::string_view, 2> kSettings = {"lr_scale", "weight_decay"};

Status set(ParamGroup& group, std::string_view word) {
  const std::size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  if (equals == std::string_view::npos || (name != kSettings[0] && name != kSettings[1]))
    return Status::error(Code::invalid, str("'", word, "' is neither lr_scale=NUMBER nor weight_decay=NUMBER",
                                            did_you_mean(name, kSettings)));
  const std::string_view text = word.substr(equals + 1);
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size())
    return Status::error(Code::invalid, str(name, " = '", text, "' is not a number"));
  if (name == kSettings[0])
    group.lr_scale = value;
  else
    group.weight_decay = value;
  return {};
}

}  // namespace

Result<ParamGroup> parse_param_group(const std::string& text) {
  std::istringstream words(text);
  ParamGroup group;
  std::string word;
  if (!(words >> group.pattern) || !(words >> word))
    return Status::error(
        Code::invalid,
        str("'", text, "' does not have the form PATTERN lr_scale=NUMBER weight_decay=NUMBER"));
  do {
    STRATA_TRY(set(group, word).annotate(str("'", text, "'")));
  } while (words >> word);
  return group;
}

}  // namespace strata
