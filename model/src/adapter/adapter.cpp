#include <strata/model/adapter/adapter.h>

#include <algorithm>
#include <type_traits>

#include <strata/graph/op_list.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

#include "adapter/pissa.h"

namespace strata {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

/// The virtual tokens of a model whose sequences have config.seq other tokens.
VirtualTokens tokens_of(const DecoderConfig& config, std::int64_t n) {
  VirtualTokens tokens{.n = n};
  for (const bool slides : config.sliding)
    tokens.windows.push_back(
        slides && config.window < config.seq + n ? static_cast<std::int32_t>(config.window) : 0);
  return tokens;
}

Status check_positions(const Program& program, const DecoderConfig& config, std::int64_t n) {
  if (config.position != DecoderConfig::Position::learned || has_op(program, Op::cached_attention) ||
      config.seq + n <= config.positions)
    return {};
  return Status::error(Code::invalid, str(plural(n, "virtual token"), " before sequences of ", config.seq,
                                          " tokens: the model's table has ", config.positions, " positions"));
}

/// A linear layer in f64: rows of `x` times the matrix [out, in], and a bias.
std::vector<double> linear_f64(const std::vector<double>& x, const std::vector<float>& weight,
                               const std::vector<float>& bias) {
  const std::size_t out = bias.size(), in = weight.size() / out, rows = x.size() / in;
  std::vector<double> y(rows * out);
  for (std::size_t t = 0; t < rows; ++t)
    for (std::size_t j = 0; j < out; ++j) {
      double sum = static_cast<double>(bias[j]);
      for (std::size_t k = 0; k < in; ++k) sum += x[t * in + k] * static_cast<double>(weight[j * in + k]);
      y[t * out + j] = sum;
    }
  return y;
}

Status encode_prompt(const ParamSource& source, std::int64_t h, std::int64_t width, std::span<float> into) {
  STRATA_TRY(source("prompt.weight", into));
  std::vector<double> x(into.begin(), into.end());
  const std::int64_t widths[] = {h, width, width, h};
  for (std::size_t i = 0; i < 3; ++i) {
    std::vector<float> weight(static_cast<std::size_t>(widths[i] * widths[i + 1])),
        bias(static_cast<std::size_t>(widths[i + 1]));
    STRATA_TRY(source(str("prompt.encoder.", i, ".weight"), weight));
    STRATA_TRY(source(str("prompt.encoder.", i, ".bias"), bias));
    if (i > 0)
      for (double& value : x) value = value > 0 ? value : 0;
    x = linear_f64(x, weight, bias);
  }
  for (std::size_t i = 0; i < x.size(); ++i) into[i] = static_cast<float>(x[i]);
  return {};
}

}  // namespace

std::vector<BottleneckModule> bottleneck_modules(const DecoderConfig& config,
                                                 const BottleneckSettings& settings) {
  using Placement = BottleneckSettings::Placement;
  std::vector<BottleneckModule> modules;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string block = str("layers.", layer, ".");
    const BottleneckModule same{.weight = {},
                                .input = {},
                                .name = {},
                                .width = settings.width,
                                .gelu = settings.gelu,
                                .scale = static_cast<float>(settings.scale)};
    if (settings.placement == Placement::attention_mlp) {
      modules.push_back(same);
      modules.back().weight = block + "attn_out.weight";
      modules.back().name = block + "attn_adapter";
    }
    modules.push_back(same);
    modules.back().weight = block + "mlp_out.weight";
    modules.back().name = block + "mlp_adapter";
    if (settings.placement == Placement::parallel) modules.back().input = block + "mlp_in.weight";
  }
  return modules;
}

std::int64_t virtual_tokens(const AdapterSettings& settings) noexcept {
  if (const auto* prompt = std::get_if<PromptSettings>(&settings)) return prompt->tokens;
  if (const auto* prompt = std::get_if<PTuningSettings>(&settings)) return prompt->tokens;
  if (const auto* prefix = std::get_if<PrefixSettings>(&settings)) return prefix->tokens;
  return 0;
}

Status check_can_merge(const DecoderConfig& config, const AdapterSettings& settings) {
  const auto refuse = [](const std::string& why) { return Status::error(Code::unsupported, why); };
  const auto* lora = std::get_if<LoraSettings>(&settings);
  if (lora == nullptr) return refuse("no matrix of the model can take that up");
  if (!config.tied_head) return {};
  constexpr const char* kTied = ", and the model ties its embedding to its head, which would change alike";
  STRATA_TRY_ASSIGN(const std::vector<LoraTarget> targets, lora_targets(config, *lora));
  for (const LoraTarget& target : targets)
    if (target.lora.place == LoraPlace::embedding || target.lora.place == LoraPlace::head)
      return refuse(str(target.module, " has an adapter", kTied));
  STRATA_TRY_ASSIGN(const std::vector<TokenTarget> tokens, token_targets(config, *lora));
  for (const TokenTarget& target : tokens)
    if (!target.rows.in_embedding || !target.rows.in_head)
      return refuse(str("tokens of ", target.module, " alone are trained", kTied));
  return {};
}

std::string describe(const AdapterSettings& settings) {
  using Placement = BottleneckSettings::Placement;
  return std::visit(
      Overloaded{
          [](const LoraSettings& s) { return str("adapters of rank ", s.rank); },
          [](const BottleneckSettings& s) {
            return str(s.placement == Placement::parallel ? "parallel" : "series", " adapters of width ",
                       s.width,
                       s.placement == Placement::parallel ? " beside the MLP"
                       : s.placement == Placement::mlp    ? " after the MLP"
                                                          : " after attention and MLP");
          },
          [](const PromptSettings& s) { return str("a prompt of ", plural(s.tokens, "virtual token")); },
          [](const PTuningSettings& s) {
            return str("a prompt of ", plural(s.tokens, "virtual token"), " with an encoder of width ",
                       s.encoder_width);
          },
          [](const PrefixSettings& s) {
            return str("a prefix of ", plural(s.tokens, "virtual token"), " in every layer");
          }},
      settings);
}

Result<bool> are_same_adapter(const DecoderConfig& config, const AdapterSettings& a,
                              const AdapterSettings& b) {
  const auto *lora_a = std::get_if<LoraSettings>(&a), *lora_b = std::get_if<LoraSettings>(&b);
  if (lora_a == nullptr || lora_b == nullptr) return a == b;
  STRATA_TRY_ASSIGN(const auto targets_a, lora_targets(config, *lora_a));
  STRATA_TRY_ASSIGN(const auto targets_b, lora_targets(config, *lora_b));
  STRATA_TRY_ASSIGN(const auto saved_a, saved_tensors(config, *lora_a));
  STRATA_TRY_ASSIGN(const auto saved_b, saved_tensors(config, *lora_b));
  STRATA_TRY_ASSIGN(const auto tokens_a, token_targets(config, *lora_a));
  STRATA_TRY_ASSIGN(const auto tokens_b, token_targets(config, *lora_b));
  const auto name = [](const HfTensor& x, const HfTensor& y) { return x.name == y.name; };
  return targets_a == targets_b && tokens_a == tokens_b &&
         std::equal(saved_a.begin(), saved_a.end(), saved_b.begin(), saved_b.end(), name);
}

namespace {

Result<Program> add_lora_of(Program program, const DecoderConfig& config, const LoraSettings& settings,
                            AdapterUse use) {
  STRATA_TRY_ASSIGN(const std::vector<LoraTarget> targets, lora_targets(config, settings));
  STRATA_TRY_ASSIGN(const std::vector<HfTensor> saved, saved_tensors(config, settings));
  for (ParamInfo& param : program.params)
    if (std::any_of(saved.begin(), saved.end(), [&](const HfTensor& t) { return t.param == param.name; }))
      param.trainable = true;
  STRATA_TRY_ASSIGN(const std::vector<TokenTarget> tokens, token_targets(config, settings));
  const double dropout = use == AdapterUse::training ? settings.dropout : 0;
  STRATA_TRY_ASSIGN(program, add_lora(std::move(program), lora_groups(targets), static_cast<float>(dropout)));
  std::vector<TokenRows> rows;
  for (const TokenTarget& target : tokens) rows.push_back(target.rows);
  if (rows.empty()) return program;
  auto with_rows = add_token_rows(std::move(program), rows);
  if (!with_rows.has_value()) return with_rows.status().annotate("trainable_tokens");
  return with_rows;
}

// Bottlenecks follow attention, and virtual tokens come before those that attention sees, in every layer.
Status check_layers(const DecoderConfig& c, const AdapterSettings& settings) {
  const auto plain = std::count(c.mixers.begin(), c.mixers.end(), Mixer::attention),
             latent = std::count(c.mixers.begin(), c.mixers.end(), Mixer::latent);
  const bool takes_latent = !std::holds_alternative<PrefixSettings>(settings);
  if (!takes_latent && c.full_heads)
    return Status::error(Code::unsupported,
                         str("a prefix has as many keys and values in each layer, but the layers of ",
                             family_limits(c.family).title, " have ", c.kv_heads, " heads of ", c.head_dim,
                             " and ", c.full_heads->kv_heads, " of ", c.full_heads->head_dim,
                             "; lora, prompt and p-tuning can adapt it"));
  if (plain + (takes_latent ? latent : 0) == c.layers) return {};
  return Status::error(Code::unsupported, str(c.layers - plain, " of the ", c.layers, " layers of ",
                                              family_limits(c.family).title,
                                              " have no plain attention, which series, parallel and prefix "
                                              "adapters and virtual tokens need; lora can "
                                              "adapt it"));
}

}  // namespace

Result<Program> add_adapter(Program program, const DecoderConfig& config, const AdapterSettings& settings,
                            AdapterUse use) {
  if (const auto* lora = std::get_if<LoraSettings>(&settings))
    return add_lora_of(std::move(program), config, *lora, use);
  const DecoderConfig whole = with_derived_sizes(config);
  const auto* const bottleneck = std::get_if<BottleneckSettings>(&settings);
  if (bottleneck != nullptr) STRATA_TRY(check_layers(whole, settings));
  if (bottleneck != nullptr && config.experts.n > 0)
    return Status::error(Code::unsupported,
                         str("series and parallel adapters follow MLPs, but those of ",
                             family_limits(config.family).title, " are mixtures of experts; lora, prompt",
                             whole.full_heads ? " and p-tuning" : ", p-tuning and prefix", " can adapt it"));
  if (bottleneck != nullptr)
    return add_bottlenecks(std::move(program), bottleneck_modules(whole, *bottleneck));
  const std::int64_t n = virtual_tokens(settings);
  STRATA_TRY(check_layers(whole, settings));
  STRATA_TRY(check_positions(program, whole, n));
  VirtualTokens tokens = tokens_of(whole, n);
  if (std::holds_alternative<PrefixSettings>(settings)) return add_prefix(std::move(program), tokens);
  if (const auto* encoded = std::get_if<PTuningSettings>(&settings))
    tokens.encoder_width = encoded->encoder_width;
  return add_prompt(std::move(program), tokens, "tokens.weight", "head");
}

AdapterSettings folder_settings(const AdapterSettings& settings) {
  const auto* lora = std::get_if<LoraSettings>(&settings);
  return lora == nullptr || !lora->pissa ? settings : detail::converted_pissa(*lora);
}

ParamSource folder_values(ParamSource source, const DecoderConfig& config, const AdapterSettings& settings) {
  if (const auto* lora = std::get_if<LoraSettings>(&settings); lora != nullptr && lora->pissa)
    return detail::converted_pissa_values(std::move(source), config, *lora);
  const auto* encoded = std::get_if<PTuningSettings>(&settings);
  if (encoded == nullptr) return source;
  return [source = std::move(source), h = config.hidden, width = encoded->encoder_width](
             std::string_view name, std::span<float> into) -> Status {
    return name == "prompt.weight" ? encode_prompt(source, h, width, into) : source(name, into);
  };
}

}  // namespace strata
