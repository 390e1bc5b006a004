#include <strata/profile/model_shapes.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <strata/runtime/str.h>

namespace strata {

Result<double> parse_parameter_count(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  constexpr std::pair<char, double> kUnits[] = {{'k', 1e3}, {'m', 1e6}, {'b', 1e9}, {'t', 1e12}};
  if (error == std::errc{} && unit.empty()) return number;
  if (error == std::errc{} && unit.size() == 1)
    for (const auto& [letter, factor] : kUnits)
      if (std::tolower(static_cast<unsigned char>(unit[0])) == letter) return number * factor;
  return Status::error(
      Code::invalid,
      str("--params ", text,
          " is not a parameter count; write a number, alone or with K, M, B or T: 7b, 1.3B, 350m, 13e9"));
}

Result<std::vector<std::string>> llama_settings_for(double parameters) {
  constexpr double kMinParameters = 1e6, kMaxParameters = 1e13, kFfnUnit = 64;
  if (!(parameters >= kMinParameters && parameters <= kMaxParameters))
    return Status::error(
        Code::invalid, fmt::format("--params {:g} is out of range; it must be from {:g} to {:g}", parameters,
                                   kMinParameters, kMaxParameters));
  // Small models have small vocabularies and narrow heads, lest the embeddings be most of them.
  const double head = parameters < 1e8 ? 64 : 128;
  const double vocab = parameters < 2e7 ? 2048 : parameters < 1e8 ? 8192 : 32000;
  // A layer has 12 h^2 parameters, and there are about h / 128 layers.
  const double ideal = std::cbrt(parameters * 128 / 12);
  const double hidden = std::max(1.0, std::round(ideal / head)) * head;
  const double embeddings = 2 * vocab * hidden;
  const double layers = std::max(1.0, std::round((parameters - embeddings) / (12 * hidden * hidden)));
  const double attention = 4 * hidden * hidden + 2 * hidden;
  const double ffn = (parameters - embeddings - hidden - layers * attention) / (3 * hidden * layers);
  const double min_ffn = kFfnUnit;
  std::vector<std::string> settings = {"model.family=llama"};
  const auto set = [&](const char* key, double value) {
    settings.push_back(str("model.", key, "=", static_cast<long long>(std::llround(value))));
  };
  set("hidden", hidden);
  set("heads", hidden / head);
  set("layers", layers);
  set("ffn", std::max(min_ffn, std::round(ffn / kFfnUnit) * kFfnUnit));
  set("vocab", vocab);
  return settings;
}

}  // namespace strata
