#include <strata/config/adapter_methods.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/config/train_config.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>

#include <strata/config/given_keys.h>
#include <strata/config/run_paths.h>

namespace strata::detail {
namespace {

using Placement = BottleneckSettings::Placement;
using KeyValues = std::vector<std::pair<std::string, std::string>>;

BottleneckSettings bottleneck(const TrainConfig& config, Placement placement) {
  const TrainConfig::Adapter& given = config.adapter;
  return {.placement = placement,
          .width = given.bottleneck,
          .gelu = given.activation == "gelu",
          .scale = given.scale};
}
Result<AdapterSettings> read_lora(const TrainConfig& config) {
  STRATA_TRY_ASSIGN(LoraSettings settings, lora_settings(config));
  return AdapterSettings(std::move(settings));
}
Result<AdapterSettings> read_series(const TrainConfig& config) {
  return AdapterSettings(
      bottleneck(config, config.adapter.placement == "mlp" ? Placement::mlp : Placement::attention_mlp));
}
Result<AdapterSettings> read_parallel(const TrainConfig& config) {
  return AdapterSettings(bottleneck(config, Placement::parallel));
}
Result<AdapterSettings> read_prompt(const TrainConfig& config) {
  return AdapterSettings(PromptSettings{config.adapter.virtual_tokens});
}
Result<AdapterSettings> read_p_tuning(const TrainConfig& config) {
  return AdapterSettings(PTuningSettings{config.adapter.virtual_tokens, config.adapter.encoder_width});
}
Result<AdapterSettings> read_prefix(const TrainConfig& config) {
  return AdapterSettings(PrefixSettings{config.adapter.virtual_tokens});
}

constexpr std::array<std::string_view, 15> kLoraKeys = {
    "rank",    "alpha",   "rslora", "dora",         "init",          "targets",         "target_parameters",
    "exclude", "dropout", "layers", "rank_pattern", "alpha_pattern", "modules_to_save", "trainable_tokens",
    "bias"};
constexpr std::array<std::string_view, 4> kSeriesKeys = {"bottleneck", "placement", "activation", "scale"};
constexpr std::array<std::string_view, 3> kParallelKeys = {"bottleneck", "activation", "scale"};
constexpr std::array<std::string_view, 2> kPromptKeys = {"virtual_tokens", "prompt_text"};
constexpr std::array<std::string_view, 1> kPrefixKeys = {"virtual_tokens"};
constexpr std::array<std::string_view, 2> kEncoderKeys = {"virtual_tokens", "encoder_width"};

// clang-format off
constexpr AdapterMethod kMethods[] = {
    {"lora", kLoraKeys, read_lora},
    {"series", kSeriesKeys, read_series},
    {"parallel", kParallelKeys, read_parallel},
    {"prompt", kPromptKeys, read_prompt},
    {"p-tuning", kEncoderKeys, read_p_tuning},
    {"prefix", kPrefixKeys, read_prefix},
};
// clang-format on

template <class T>
std::string patterns_text(const std::vector<std::pair<std::string, T>>& patterns) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : patterns) texts.push_back(str(name, "=", value));
  return list_text(texts);
}

std::string tokens_text(const std::vector<TrainedTokens>& tokens) {
  std::vector<std::string> texts;
  for (const TrainedTokens& each : tokens)
    for (const std::int64_t id : each.ids)
      texts.push_back(each.module.empty() ? str(id) : str(each.module, "=", id));
  return list_text(texts);
}

struct KeysOf {
  KeyValues operator()(const LoraSettings& s) const {
    return {{"adapter.method", "lora"},
            {"adapter.rank", str(s.rank)},
            {"adapter.alpha", str(s.alpha)},
            {"adapter.rslora", s.rslora ? "true" : "false"},
            {"adapter.dora", s.dora ? "true" : "false"},
            {"adapter.init",
             s.pissa ? std::string(s.pissa == kernels::SvdMethod::exact ? "pissa" : "pissa-subspace")
                     : "default"},
            {"adapter.targets", list_text(s.targets)},
            {"adapter.target_parameters", list_text(s.parameters)},
            {"adapter.exclude", list_text(s.exclude)},
            {"adapter.layers", fmt::format("{}", fmt::join(s.layers, ","))},
            {"adapter.rank_pattern", patterns_text(s.rank_pattern)},
            {"adapter.alpha_pattern", patterns_text(s.alpha_pattern)},
            {"adapter.modules_to_save", list_text(s.save)},
            {"adapter.trainable_tokens", tokens_text(s.tokens)},
            {"adapter.bias", s.bias_name()},
            {"adapter.dropout", str(s.dropout)}};
  }
  KeyValues operator()(const BottleneckSettings& s) const {
    const bool parallel = s.placement == Placement::parallel;
    KeyValues keys = {{"adapter.method", parallel ? "parallel" : "series"},
                      {"adapter.bottleneck", str(s.width)},
                      {"adapter.activation", s.gelu ? "gelu" : "relu"},
                      {"adapter.scale", str(s.scale)}};
    if (!parallel)
      keys.emplace_back("adapter.placement", s.placement == Placement::mlp ? "mlp" : "attention_mlp");
    return keys;
  }
  KeyValues operator()(const PromptSettings& s) const {
    return {{"adapter.method", "prompt"}, {"adapter.virtual_tokens", str(s.tokens)}};
  }
  KeyValues operator()(const PTuningSettings& s) const {
    return {{"adapter.method", "p-tuning"},
            {"adapter.virtual_tokens", str(s.tokens)},
            {"adapter.encoder_width", str(s.encoder_width)}};
  }
  KeyValues operator()(const PrefixSettings& s) const {
    return {{"adapter.method", "prefix"}, {"adapter.virtual_tokens", str(s.tokens)}};
  }
};

bool is_among(std::string_view key, std::span<const std::string_view> keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// The methods that read a key, by name.
std::string readers_of(std::string_view key) {
  std::string names;
  for (const AdapterMethod& method : kMethods)
    if (is_among(key, method.keys)) names += str(names.empty() ? "" : ", ", method.name);
  return names;
}

// Refuses settings with which a converted adapter cannot be stated, and states of a trainer, which has no
// values of A0 and B0.
void check_pissa(const ConfigTree& tree, const TrainConfig& config, std::vector<std::string>& problems) {
  const TrainConfig::Adapter& given = config.adapter;
  if (given.init == "default") return;
  const std::string is_set =
      str(tree.entry("adapter.init").origin, ": adapter.init = ", given.init, ", but ");
  const auto refuse = [&](const char* key, const std::string& value, const char* why) {
    problems.push_back(str(is_set, key, " = ", value, " (", tree.entry(key).origin, ")", why));
  };
  if (given.dora) refuse("adapter.dora", "true", "; PiSSA and DoRA cannot be combined");
  for (const char* key : {"adapter.rank_pattern", "adapter.alpha_pattern"})
    if (given.rslora && !tree.texts(key).empty())
      refuse(key, tree.entry(key).raw, " with adapter.rslora = true, for which PEFT has no converted form");
  if (!config.model.states.empty())
    refuse("model.states", config.model.states, ", which has no values of what PiSSA starts from");
}

// Some settings of adapters are of losses over tokens alone. A dropout that an adapter's folder says, or a
// run has from one, is not used there (start_notes.cpp).
void check_objective(const ConfigTree& tree, const TrainConfig& config, std::vector<std::string>& problems) {
  const TrainConfig::Adapter& given = config.adapter;
  const auto refuse = [&](const char* key, const std::string& value, const char* why) {
    problems.push_back(str(tree.entry(key).origin, ": ", key, " = ", value, ", but train.objective is ",
                           config.train.objective, " (", tree.entry("train.objective").origin, "), ", why));
  };
  const std::string& origin = tree.entry("adapter.dropout").origin;
  const bool is_asked_for = !origin.ends_with("adapter_config.json") && run_of_origin(origin).empty();
  if (given.dropout > 0 && is_asked_for && objective_of(config).data != RunData::texts)
    refuse("adapter.dropout", str(given.dropout), "whose programs have no dropout");
  if (objective_of(config).data != RunData::prompts) return;
  constexpr const char* kWhy = "whose reference is the base without what the run trains";
  if (!given.modules_to_save.empty())
    refuse("adapter.modules_to_save", tree.entry("adapter.modules_to_save").raw, kWhy);
  if (given.bias != "none") refuse("adapter.bias", given.bias, kWhy);
}

}  // namespace

std::string list_text(const std::vector<std::string>& items) {
  const auto is_simple = [](const std::string& item) {
    return !item.empty() && item.find_first_of(",\"' \\") == std::string::npos && !item.starts_with('[');
  };
  if (std::all_of(items.begin(), items.end(), is_simple)) return fmt::format("{}", fmt::join(items, ","));
  std::vector<std::string> quoted;
  for (const std::string& item : items) quoted.push_back(json_string(item));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

const AdapterMethod* adapter_method(std::string_view name) noexcept {
  const auto found = std::find_if(std::begin(kMethods), std::end(kMethods),
                                  [&](const AdapterMethod& method) { return method.name == name; });
  return found == std::end(kMethods) ? nullptr : found;
}

std::vector<std::string_view> adapter_method_names() {
  std::vector<std::string_view> names;
  for (const AdapterMethod& method : kMethods) names.push_back(method.name);
  return names;
}

bool method_reads(std::string_view name, std::string_view key) noexcept {
  const AdapterMethod* const method = adapter_method(name);
  return method != nullptr && is_among(key, method->keys);
}

KeyValues adapter_keys_of(const AdapterSettings& settings) { return std::visit(KeysOf{}, settings); }

void check_adapter(const ConfigTree& tree, const TrainConfig& config, std::vector<std::string>& problems) {
  const AdapterMethod* const method = adapter_method(config.adapter.method);
  for (const ConfigEntry& entry : tree.entries()) {
    const std::string_view name = entry.spec->name;
    if (std::string_view(entry.spec->section) != "adapter" || name == "method" || name == "from") continue;
    if (!is_given(tree, entry) || method_reads(config.adapter.method, name)) continue;
    problems.push_back(str(entry.origin, ": adapter.", name, " = ", entry.raw,
                           " is of adapter.method = ", readers_of(name), ", but adapter.method is ",
                           config.adapter.method, " (", tree.entry("adapter.method").origin, ")"));
  }
  if (method == nullptr) return;
  if (const Status status = method->read(config).status(); !status.is_ok())
    problems.emplace_back(status.message());
  check_pissa(tree, config, problems);
  check_objective(tree, config, problems);
  if (!config.adapter.prompt_text.empty() && config.model.from.empty())
    problems.push_back(str(tree.entry("adapter.prompt_text").origin,
                           ": adapter.prompt_text starts from embeddings of model.from, which is not set"));
  if (virtual_tokens(config) > 0 && config.data.packing == "pack")
    problems.push_back(
        str(tree.entry("data.packing").origin,
            ": data.packing = pack, but adapter.method = ", config.adapter.method,
            " puts virtual tokens before a row, not before each of its documents; use stream"));
}

}  // namespace strata::detail
