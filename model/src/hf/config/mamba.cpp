#include "hf/config/mamba.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hf/config/rope.h"

namespace strata::detail {
namespace {

/// A limit of steps, which may be infinite, see text.h.
float read_step_limit(Keys& k, const json& value) {
  if (value.is_number() && std::abs(value.get<double>()) <= kMaxFloat)
    return static_cast<float>(value.get<double>());
  if (value == json{{"__float__", "Infinity"}}) return std::numeric_limits<float>::infinity();
  k.unsupported(str("time_step_limit has ", value.dump().substr(0, 80)));
  return 0;
}

void read_step_limits(Keys& k, MambaConfig& m) {
  const json* const limits = k.find({"time_step_limit"});
  if (limits == nullptr) return;
  if (!limits->is_array() || limits->size() != 2)
    return k.unsupported("time_step_limit is not a list of two numbers");
  m.step_low = read_step_limit(k, (*limits)[0]);
  m.step_high = read_step_limit(k, (*limits)[1]);
}

/// A list of `n` factors, all of which are 1 without the key.
std::vector<float> read_factor_list(Keys& k, const char* name, std::size_t n) {
  const json* const found = k.find({name});
  std::vector<float> factors(n, 1.0f);
  if (found == nullptr) return factors;
  if (!found->is_array() || found->size() != n) {
    k.unsupported(str(name, " is not a list of ", n, " numbers"));
    return factors;
  }
  for (std::size_t i = 0; i < n; ++i) {
    const json& value = (*found)[i];
    factors[i] = value.is_number() && std::abs(value.get<double>()) <= kMaxFloat
                     ? static_cast<float>(value.get<double>())
                     : 0.0f;
    if (!(std::abs(factors[i]) > 0)) k.unsupported(str(name, " has ", value.dump().substr(0, 80)));
  }
  return factors;
}

json factors_json(const DecoderConfig& c) {
  const HybridFactors& f = c.hybrid_factors;
  json j = {{"embedding_multiplier", decimal(c.embedding_factor)},
            {"lm_head_multiplier", decimal(f.head)},
            {"key_multiplier", decimal(f.key)},
            {"attention_in_multiplier", decimal(f.attn_in)},
            {"attention_out_multiplier", decimal(f.attn_out)},
            {"ssm_in_multiplier", decimal(f.mamba_in)},
            {"ssm_out_multiplier", decimal(f.mamba_out)}};
  j["mlp_multipliers"] = json::array({decimal(f.gate), decimal(f.down)});
  j["ssm_multipliers"] = json::array();
  for (const float factor : f.mamba) j["ssm_multipliers"].push_back(decimal(factor));
  return j;
}

const char* word_of_letter(char letter) {
  switch (letter) {
    case 'M':
      return "linear_attention";
    case '*':
      return "full_attention";
    case '-':
      return "mlp";
    case 'E':
      return "moe";
    default:
      return nullptr;
  }
}

}  // namespace

const char* type_of(Mixer mixer) {
  return mixer == Mixer::delta || mixer == Mixer::mamba ? "linear_attention"
         : mixer == Mixer::short_conv                   ? "conv"
                                                        : "full_attention";
}

json with_layer_types(json root) {
  if (!root.is_object() || !root.contains("model_type") || root["model_type"] != "nemotron_h") return root;
  const auto pattern = root.find("hybrid_override_pattern");
  if (pattern != root.end() && pattern->is_string() && !root.contains("layers_block_type")) {
    json types = json::array();
    for (const char letter : pattern->get<std::string>()) {
      const char* const word = word_of_letter(letter);
      types.push_back(word != nullptr ? json(word) : json(str("the letter with the code ", int{letter})));
    }
    root["layers_block_type"] = std::move(types);
  }
  root.erase("hybrid_override_pattern");
  if (const auto types = root.find("layers_block_type"); types != root.end() && types->is_array())
    root["num_hidden_layers"] = types->size();
  return root;
}

void read_mamba(Keys& k, DecoderConfig& c, HfMixers how) {
  MambaConfig& m = c.mamba;
  m.heads = k.integer({"mamba_n_heads"}, 128);
  m.groups = k.integer({"mamba_n_groups"}, 1);
  m.state = k.integer({"mamba_d_state"}, 256);
  m.taps = k.integer({"mamba_d_conv"}, 4);
  m.conv_bias = k.flag("mamba_conv_bias", true);
  m.in_bias = m.out_bias = k.flag("mamba_proj_bias", false);
  const bool is_falcon = how == HfMixers::falcon;
  if (is_falcon) m.out_bias = k.flag("projectors_bias", false);
  const bool has_width = is_falcon && (!k.has("mamba_d_ssm") || k.find({"mamba_d_ssm"}) != nullptr);
  const std::int64_t inner =
      has_width ? k.integer({"mamba_d_ssm"}, 1024) : c.hidden * k.integer({"mamba_expand"}, 2);
  const json* const dim = k.find({"mamba_d_head"});
  const bool is_auto = dim == nullptr || *dim == "auto";
  m.head_dim = is_auto ? inner / std::max<std::int64_t>(m.heads, 1) : k.integer({"mamba_d_head"});
  if (m.heads == 0 || m.groups == 0 || m.state == 0 || m.taps == 0 || m.heads * m.head_dim != inner)
    k.unsupported(str("mamba_n_heads is ", m.heads, ", mamba_d_head ", m.head_dim, ", mamba_n_groups ",
                      m.groups, ", mamba_d_state ", m.state, " and mamba_d_conv ", m.taps, " for ", inner,
                      " elements; each must be at least 1, and heads as wide together"));
  read_step_limits(k, m);
  if (is_falcon && k.flag("mamba_rms_norm", false))
    m.norm = k.flag("mamba_norm_before_gate", true) ? MambaConfig::Norm::norm_first
                                                    : MambaConfig::Norm::gate_first;
}

void read_granite_rope(Keys& k, DecoderConfig& c) {
  const std::string kind = k.text({"position_embedding_type"}, "nope");
  if (kind == "rope")
    c.no_rope_every = 0;
  else if (kind != "nope")
    k.unsupported(str("position_embedding_type is ", kind));
}

void read_hybrid_factors(Keys& k, DecoderConfig& c) {
  HybridFactors& f = c.hybrid_factors;
  c.embedding_factor = k.positive({"embedding_multiplier"}, 1.0);
  f.head = k.positive({"lm_head_multiplier"}, 1.0);
  f.key = k.positive({"key_multiplier"}, 1.0);
  f.attn_in = k.positive({"attention_in_multiplier"}, 1.0);
  f.attn_out = k.positive({"attention_out_multiplier"}, 1.0);
  f.mamba_in = k.positive({"ssm_in_multiplier"}, 1.0);
  f.mamba_out = k.positive({"ssm_out_multiplier"}, 1.0);
  const std::vector<float> mlp = read_factor_list(k, "mlp_multipliers", 2);
  const std::vector<float> mamba = read_factor_list(k, "ssm_multipliers", f.mamba.size());
  f.gate = mlp[0];
  f.down = mlp[1];
  std::copy(mamba.begin(), mamba.end(), f.mamba.begin());
}

void read_nemotron(Keys& k, DecoderConfig& c) {
  MambaConfig& m = c.mamba;
  m.heads = k.integer({"mamba_num_heads"}, 128);
  m.head_dim = k.integer({"mamba_head_dim"}, 64);
  m.groups = k.integer({"mamba_n_groups", "n_groups"}, 8);
  m.state = k.integer({"ssm_state_size"}, 128);
  m.taps = k.integer({"mamba_d_conv", "conv_kernel"}, 4);
  m.conv_bias = k.flag(k.has("mamba_conv_bias") ? "mamba_conv_bias" : "use_conv_bias", true);
  m.in_bias = m.out_bias = k.flag("use_bias", false);
  if (m.heads == 0 || m.head_dim == 0 || m.groups == 0 || m.state == 0 || m.taps == 0)
    k.unsupported(str("mamba_num_heads is ", m.heads, ", mamba_head_dim ", m.head_dim, ", n_groups ",
                      m.groups, ", ssm_state_size ", m.state, " and conv_kernel ", m.taps));
  // transformers limits steps by this and not by time_step_limit, and below alone.
  m.step_low = static_cast<float>(k.number({"mamba_dt_min", "time_step_min"}, 0.001));
  const std::string act = k.text({"mamba_hidden_act"}, "silu");
  if (act != "silu" && act != "swish") k.unsupported(str("mamba_hidden_act is ", act));
}

json mamba_json(const DecoderConfig& c, HfMixers how) {
  const MambaConfig& m = c.mamba;
  json j = {{"mamba_n_heads", m.heads},    {"mamba_d_head", m.head_dim}, {"mamba_n_groups", m.groups},
            {"mamba_d_state", m.state},    {"mamba_d_conv", m.taps},     {"mamba_conv_bias", m.conv_bias},
            {"mamba_proj_bias", m.in_bias}};
  const json high = std::isfinite(m.step_high) ? json(decimal(m.step_high)) : json{{"__float__", "Infinity"}};
  j["time_step_limit"] = json::array({decimal(m.step_low), high});
  if (how == HfMixers::granite) {
    if (c.hidden > 0 && m.inner() % c.hidden == 0) j["mamba_expand"] = m.inner() / c.hidden;
    const bool turns = std::count(c.rope_layers.begin(), c.rope_layers.end(), true) > 0;
    j["position_embedding_type"] = turns ? json("rope") : json(nullptr);
    return j;
  }
  j["mamba_d_ssm"] = m.inner();
  j["projectors_bias"] = m.out_bias;
  j["mamba_rms_norm"] = m.norm != MambaConfig::Norm::none;
  j["mamba_norm_before_gate"] = m.norm == MambaConfig::Norm::norm_first;
  j.update(factors_json(c));
  return j;
}

json nemotron_json(const DecoderConfig& c) {
  const MambaConfig& m = c.mamba;
  json j = {{"mamba_num_heads", m.heads},
            {"mamba_head_dim", m.head_dim},
            {"n_groups", m.groups},
            {"ssm_state_size", m.state},
            {"conv_kernel", m.taps},
            {"use_conv_bias", m.conv_bias},
            {"use_bias", m.in_bias},
            {"time_step_min", decimal(m.step_low)},
            {"layers_block_type", json::array()}};
  for (std::size_t i = 0; i < c.mixers.size(); ++i) {
    const bool is_mixture = c.experts.n > 0 && c.experts.layers[i];
    j["layers_block_type"].push_back(c.mixers[i] != Mixer::none ? type_of(c.mixers[i])
                                     : is_mixture               ? "moe"
                                                                : "mlp");
  }
  return j;
}

}  // namespace strata::detail
