#include <strata/config/train_config.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>

#include <strata/config/adapter_methods.h>

namespace strata {
namespace {

template <class T>
void parse_patterns(const char* key, const std::vector<std::string>& texts,
                    std::vector<std::pair<std::string, T>>& into, std::string& problems) {
  for (const std::string& text : texts) {
    const std::size_t equals = text.rfind('=');
    const char* const end = text.data() + text.size();
    T value{};
    const bool has_name = equals != std::string::npos && equals > 0;
    const auto parsed = std::from_chars(has_name ? text.data() + equals + 1 : end, end, value);
    if (!has_name || parsed.ec != std::errc{} || parsed.ptr != end || !(value > 0))
      problems += str("\n  ", key, ": '", text, "' does not have the form NAME=NUMBER, above 0");
    else
      into.emplace_back(text.substr(0, equals), value);
  }
}

void read_layers(const std::vector<double>& numbers, std::vector<std::int64_t>& layers,
                 std::string& problems) {
  constexpr double kMost = 1 << 20;
  for (const double number : numbers) {
    if (number >= 0 && number <= kMost && std::floor(number) == number)
      layers.push_back(static_cast<std::int64_t>(number));
    else
      problems += str("\n  adapter.layers has ", number, ", which is not the number of a layer");
  }
}

/// "3" is a token of the embedding, and "lm_head=3" one of a module.
void read_tokens(const std::vector<std::string>& texts, std::vector<TrainedTokens>& tokens,
                 std::string& problems) {
  for (const std::string& text : texts) {
    const std::size_t equals = text.rfind('=');
    const std::string module = equals == std::string::npos ? "" : text.substr(0, equals);
    const char* const begin = text.data() + (equals == std::string::npos ? 0 : equals + 1);
    const char* const end = text.data() + text.size();
    std::int64_t id = 0;
    const auto parsed = std::from_chars(begin, end, id);
    if (equals == 0 || parsed.ec != std::errc{} || parsed.ptr != end) {
      problems += str("\n  adapter.trainable_tokens: '", text, "' is neither a token nor MODULE=TOKEN");
      continue;
    }
    auto of = std::find_if(tokens.begin(), tokens.end(),
                           [&](const TrainedTokens& each) { return each.module == module; });
    if (of == tokens.end()) of = tokens.insert(of, TrainedTokens{module});
    of->ids.push_back(id);
  }
}

}  // namespace

kernels::WeightFormat base_format(const TrainConfig& config) noexcept {
  // `full` also if it is `auto` and nothing has decided it.
  return kernels::weight_format_named(config.train.base).value_or(kernels::WeightFormat::full);
}

Result<AdapterSettings> adapter_settings(const TrainConfig& config) {
  const detail::AdapterMethod* const method = detail::adapter_method(config.adapter.method);
  STRATA_ASSERT(method != nullptr, "adapter.method = ", config.adapter.method, " has no settings");
  return method->read(config);
}

bool has_dropout(const TrainConfig& config) noexcept {
  return config.adapter.method == "lora" && config.adapter.dropout > 0 &&
         objective_of(config).data == RunData::texts;
}

std::int64_t virtual_tokens(const TrainConfig& config) noexcept {
  return detail::method_reads(config.adapter.method, "virtual_tokens") ? config.adapter.virtual_tokens : 0;
}

Result<LoraSettings> lora_settings(const TrainConfig& config) {
  const TrainConfig::Adapter& given = config.adapter;
  LoraSettings settings{.rank = given.rank,
                        .alpha = given.alpha,
                        .rslora = given.rslora,
                        .dora = given.dora,
                        .targets = given.targets,
                        .parameters = given.target_parameters,
                        .exclude = given.exclude,
                        .save = given.modules_to_save,
                        .bias = LoraSettings::bias_named(given.bias).value_or(LoraSettings::Bias::none),
                        .dropout = given.dropout};
  if (given.init != "default")
    settings.pissa = given.init == "pissa" ? kernels::SvdMethod::exact : kernels::SvdMethod::subspace;
  std::string problems;
  parse_patterns("adapter.rank_pattern", given.rank_pattern, settings.rank_pattern, problems);
  parse_patterns("adapter.alpha_pattern", given.alpha_pattern, settings.alpha_pattern, problems);
  read_layers(given.layers, settings.layers, problems);
  read_tokens(given.trainable_tokens, settings.tokens, problems);
  if (problems.empty()) return settings;
  return Status::error(Code::invalid, str("section adapter:", problems));
}

}  // namespace strata
