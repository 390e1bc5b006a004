#include "hf/config/mixers.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "hf/config/mamba.h"

#include "family/family.h"

namespace strata::detail {
namespace {

/// transformers has one word for all layers with a state; which of them it means depends on the family.
std::optional<Mixer> mixer_of(const json& type, HfMixers how) {
  if (type == "full_attention" || type == "attention") return Mixer::attention;
  if (type == "linear_attention" && how == HfMixers::delta) return Mixer::delta;
  if (type == "conv" && how == HfMixers::lfm2) return Mixer::short_conv;
  const bool has_mamba = how == HfMixers::granite || how == HfMixers::nemotron;
  if ((type == "linear_attention" || type == "mamba") && has_mamba) return Mixer::mamba;
  if ((type == "mlp" || type == "moe") && how == HfMixers::nemotron) return Mixer::none;
  return std::nullopt;
}

std::size_t layers_of(const DecoderConfig& c) { return static_cast<std::size_t>(c.layers); }

/// LFM2's layers without layer_types.
void read_attention_layers(Keys& k, DecoderConfig& c) {
  const json* const given = k.find({"full_attn_idxs"});
  c.mixers.assign(static_cast<std::size_t>(c.layers),
                  given == nullptr ? Mixer::attention : Mixer::short_conv);
  if (given == nullptr) return;
  if (!given->is_array()) return k.unsupported("full_attn_idxs is not a list");
  for (const json& layer : *given) {
    if (!layer.is_number_integer() || layer.get<std::int64_t>() < 0 || layer.get<std::int64_t>() >= c.layers)
      return k.unsupported(
          str("full_attn_idxs has ", layer.dump().substr(0, 80), ", and the model ", c.layers, " layers"));
    c.mixers[layer.get<std::size_t>()] = Mixer::attention;
  }
}

void read_latent(Keys& k, DecoderConfig& c) {
  c.latent = {.kv_rank = k.integer({"kv_lora_rank"}, 512),
              .q_rank = k.has("q_lora_rank") ? k.integer({"q_lora_rank"}, 0) : 1536,
              .plain = k.integer({"qk_nope_head_dim"}, 128),
              .rotated = k.integer({"qk_rope_head_dim"}, 64),
              .value = k.integer({"v_head_dim"}, 128),
              .mscale_all = c.latent.mscale_all,
              .selects = k.integer({"index_topk"}, 0)};
  c.head_dim = c.latent.plain + c.latent.rotated;
  c.kv_heads = c.heads;
  if (c.latent.kv_rank == 0 || c.latent.plain == 0 || c.latent.rotated == 0 || c.latent.value == 0)
    k.unsupported(str("kv_lora_rank is ", c.latent.kv_rank, ", and heads have qk_nope_head_dim ",
                      c.latent.plain, ", qk_rope_head_dim ", c.latent.rotated, " and v_head_dim ",
                      c.latent.value, " elements"));
  c.rotary_dim = c.latent.rotated;
  if (family_of(c).hf.experts != HfExperts::deepseek_v2)  // where pairs are always next to each other
    c.rotary_interleaved = k.flag("rope_interleave", true);
  if (c.latent.mscale_all == 0) return;
  const double m = 0.1 * static_cast<double>(c.latent.mscale_all) *
                       std::log(std::max(1.0, static_cast<double>(c.frequencies.factor))) +
                   1.0;
  c.score_factor = static_cast<float>(m * m / std::sqrt(static_cast<double>(c.head_dim)));
}

void read_layer_types(Keys& k, DecoderConfig& c, HfMixers how) {
  const json* const types = k.find({"layer_types", "layers_block_type"});
  if (types == nullptr && how == HfMixers::lfm2) return read_attention_layers(k, c);
  if (types == nullptr && how == HfMixers::nemotron) return k.unsupported("layers_block_type is missing");
  if (types == nullptr && how == HfMixers::granite) return c.mixers.assign(layers_of(c), Mixer::mamba);
  if (types == nullptr) {
    c.attention_every = k.integer({"full_attention_interval"}, c.attention_every);
    if (c.attention_every < 1) k.unsupported("full_attention_interval is 0");
    return;
  }
  if (!types->is_array() || std::ssize(*types) != c.layers)
    return k.unsupported(str("layer_types is not a list of ", c.layers));
  c.mixers.clear();
  for (const json& type : *types) {
    const std::optional<Mixer> mixer = mixer_of(type, how);
    if (!mixer) return k.unsupported(str("layer_types has ", type.dump().substr(0, 80)));
    c.mixers.push_back(*mixer);
  }
}

void read_delta(Keys& k, DecoderConfig& c) {
  c.delta = {.key_heads = k.integer({"linear_num_key_heads"}, 16),
             .value_heads = k.integer({"linear_num_value_heads"}, 32),
             .key_dim = k.integer({"linear_key_head_dim"}, 128),
             .value_dim = k.integer({"linear_value_head_dim"}, 128),
             .taps = k.integer({"linear_conv_kernel_dim"}, 4)};
  const DeltaConfig& d = c.delta;
  for (const auto& [name, value] :
       {std::pair{"linear_num_key_heads", d.key_heads}, std::pair{"linear_num_value_heads", d.value_heads},
        std::pair{"linear_key_head_dim", d.key_dim}, std::pair{"linear_value_head_dim", d.value_dim}})
    if (value == 0) k.unsupported(str(name, " is 0"));  // which would mean the usual size here
  k.must_be("attn_output_gate", true, true);
}

/// Rounds as transformers does, in doubles.
void read_lfm2(Keys& k, DecoderConfig& c) {
  c.conv_taps = k.integer({"conv_L_cache"}, 3);
  if (c.conv_taps == 0) k.unsupported("conv_L_cache is 0");
  c.conv_bias = k.flag("conv_bias", false);
  c.tied_head = k.flag("tie_embedding", c.tied_head);
  if (c.experts.n > 0 || !k.flag("block_auto_adjust_ff_dim", true)) return;
  c.ffn = 2 * c.ffn / 3;
  if (k.has("block_ffn_dim_multiplier") && k.find({"block_ffn_dim_multiplier"}) == nullptr) return;
  const double factor = k.number({"block_ffn_dim_multiplier"}, 1.0);
  const std::int64_t multiple = k.integer({"block_multiple_of"}, 256);
  if (!(factor > 0 && factor <= 1024) || multiple < 1)
    return k.unsupported(str("block_ffn_dim_multiplier is ", factor, " and block_multiple_of ", multiple));
  c.ffn = static_cast<std::int64_t>(factor * static_cast<double>(c.ffn));
  c.ffn = (c.ffn + multiple - 1) / multiple * multiple;
}

}  // namespace

void read_mixers(Keys& k, DecoderConfig& c) {
  const HfMixers how = family_of(c).hf.mixers;
  if (how == HfMixers::none) return;
  if (how == HfMixers::latent) return read_latent(k, c);
  if (how != HfMixers::falcon) read_layer_types(k, c, how);
  switch (how) {
    case HfMixers::delta:
      return read_delta(k, c);
    case HfMixers::lfm2:
      return read_lfm2(k, c);
    case HfMixers::nemotron:
      return read_nemotron(k, c);
    case HfMixers::granite:
      read_granite_rope(k, c);
      return read_mamba(k, c, how);
    case HfMixers::falcon:
      read_hybrid_factors(k, c);
      return read_mamba(k, c, how);
    case HfMixers::none:
    case HfMixers::latent:
      return;
  }
}

nlohmann::json mixers_json(const DecoderConfig& c) {
  json j = json::object();
  const HfMixers how = family_of(c).hf.mixers;
  if (how == HfMixers::none) return j;
  if (how == HfMixers::latent) {
    const LatentConfig& l = c.latent;
    j = {{"q_lora_rank", l.q_rank > 0 ? json(l.q_rank) : json(nullptr)},
         {"kv_lora_rank", l.kv_rank},
         {"qk_nope_head_dim", l.plain},
         {"qk_rope_head_dim", l.rotated},
         {"v_head_dim", l.value}};
    if (l.selects > 0) j["index_topk"] = l.selects;
    if (family_of(c).hf.experts != HfExperts::deepseek_v2) j["rope_interleave"] = c.rotary_interleaved;
    return j;
  }
  if (how == HfMixers::falcon) return mamba_json(c, how);
  if (how == HfMixers::nemotron) return nemotron_json(c);
  j["layer_types"] = json::array();
  for (const Mixer mixer : c.mixers) j["layer_types"].push_back(type_of(mixer));
  if (how == HfMixers::granite)
    j.update(mamba_json(c, how));
  else if (how == HfMixers::delta)
    j.update({{"linear_num_key_heads", c.delta.key_heads},
              {"linear_num_value_heads", c.delta.value_heads},
              {"linear_key_head_dim", c.delta.key_dim},
              {"linear_value_head_dim", c.delta.value_dim},
              {"linear_conv_kernel_dim", c.delta.taps}});
  else
    j.update({{"conv_L_cache", c.conv_taps}, {"conv_bias", c.conv_bias}, {"tie_embedding", c.tied_head}});
  if (how == HfMixers::lfm2 && c.experts.n == 0)  // a name of older files would come before the width's
    j.update({{"block_auto_adjust_ff_dim", false}, {"block_ff_dim", c.ffn}});
  return j;
}

}  // namespace strata::detail
