#include "hf/config/gemma4.h"

#include "hf/config/rope.h"

namespace strata::detail {
namespace {

constexpr const char* kParameters = "rope_parameters";

/// Which layers slide; the last one never does, whatever the file says.
void read_types(Keys& k, DecoderConfig& c) {
  c.window = k.integer({"sliding_window"}, c.window);
  if (c.window == 0) k.unsupported("sliding_window is 0");
  const json* const types = k.find({"layer_types"});
  if (types == nullptr) return;
  if (!types->is_array() || std::ssize(*types) != c.layers)
    return k.unsupported(str("layer_types is not a list of ", c.layers));
  c.sliding.clear();
  for (const json& type : *types) {
    c.sliding.push_back(type == "sliding_attention");
    if (type != "sliding_attention" && type != "full_attention")
      return k.unsupported(str("layer_types has ", type.dump().substr(0, 80)));
  }
}

/// The heads of one layer as newer files have them; they must be those of all layers that see all keys.
void read_layer_heads(Keys& k, const std::string& layer, const json& given, const DecoderConfig& c,
                      FullHeads& f, bool is_first) {
  const std::string section = str(kGemma4LayerKeys, ".", layer, ".");
  if (!given.is_object()) return k.unsupported(str(section, " is ", given.dump().substr(0, 80)));
  for (const auto& [key, value] : given.items())
    if (key != "head_dim" && key != "num_key_value_heads")
      k.unsupported(str(section, key, " is ", value.dump().substr(0, 80)));
  Keys of_layer = k.within(given, section);
  const std::int64_t head_dim = of_layer.integer({"head_dim"}, c.head_dim),
                     kv_heads = of_layer.integer({"num_key_value_heads"}, c.kv_heads);
  k.take(of_layer);
  if (!is_first && (head_dim != f.head_dim || kv_heads != f.kv_heads))
    k.unsupported(str(section, " has ", kv_heads, " heads of ", head_dim, " and the layer before it ",
                      f.kv_heads, " of ", f.head_dim));
  f.head_dim = head_dim;
  f.kv_heads = kv_heads;
}

void read_heads(Keys& k, DecoderConfig& c) {
  FullHeads& f = *c.full_heads;
  f.keys_as_values = k.flag("attention_k_eq_v", false);
  const json* const by_layer = k.find({kGemma4LayerKeys});
  if (by_layer == nullptr) {
    f.head_dim = k.integer({"global_head_dim"}, 512);
    const std::int64_t own = k.integer({"num_global_key_value_heads"}, c.kv_heads);
    f.kv_heads = f.keys_as_values ? own : c.kv_heads;
    return;
  }
  if (!by_layer->is_object())
    return k.unsupported(str(kGemma4LayerKeys, " is ", by_layer->dump().substr(0, 80)));
  const DecoderConfig whole = with_derived_sizes(c);
  std::int64_t full = 0, given = 0;
  for (std::int64_t layer = 0; layer < std::ssize(whole.sliding); ++layer) {
    const auto at = by_layer->find(str(layer));
    const bool sees_all = !whole.sliding[static_cast<std::size_t>(layer)];
    given += at != by_layer->end() ? 1 : 0;
    if (!sees_all && at != by_layer->end())
      k.unsupported(str(kGemma4LayerKeys, " has layer ", layer, ", which has a sliding window"));
    else if (sees_all)
      read_layer_heads(k, str(layer), at != by_layer->end() ? *at : json::object(), c, f, full++ == 0);
  }
  if (given != std::ssize(*by_layer))
    k.unsupported(str(kGemma4LayerKeys, " has ", by_layer->size(), " layers, ", given,
                      " of which are among the ", c.layers));
  if (!f.keys_as_values && f.kv_heads != c.kv_heads)
    k.unsupported(str(kGemma4LayerKeys, " has ", f.kv_heads, " heads of keys, and the model ", c.kv_heads,
                      " where attention_k_eq_v is false"));
}

/// RoPE of one kind of layers. `share`: of full layers, where not all pairs of a head may turn.
void read_section(Keys& k, const json& parameters, const char* kind, RopeFrequencies& f, double* share) {
  const auto at = parameters.find(kind);
  const std::string name = str(kParameters, ".", kind);
  if (at == parameters.end() || !at->is_object())
    return k.unsupported(str(name, " is ", at == parameters.end() ? "missing" : at->dump().substr(0, 80)));
  Keys s = k.within(*at, name + ".");
  f = {.theta = s.positive({"rope_theta"}, 10000.0)};
  const std::string type = s.text({"rope_type"}, "default");
  if (type == "proportional" && share != nullptr) {
    *share = s.number({"partial_rotary_factor"}, 1.0);
    f.factor = s.positive({"factor"}, 1.0);
    if (f.factor != 1) f.scaling = RopeFrequencies::Scaling::linear;
    if (!(*share >= 0 && *share <= 1)) {
      s.unsupported(str(name, ".partial_rotary_factor is ", *share));
      *share = 0;
    }
  } else if (type != "default") {
    s.unsupported(str(name, ".rope_type is ", type));
  } else if (share != nullptr) {
    *share = 1;
  }
  k.take(s);
}

void read_ropes(Keys& k, DecoderConfig& c) {
  const json* const parameters = k.find({kParameters});
  if (parameters == nullptr) return;
  if (!parameters->is_object())
    return k.unsupported(str(kParameters, " is ", parameters->dump().substr(0, 80)));
  read_section(k, *parameters, "full_attention", c.frequencies, &c.full_heads->rotary_share);
  read_section(k, *parameters, "sliding_attention", *c.sliding_frequencies, nullptr);
}

void read_experts(Keys& k, ExpertsConfig& e) {
  if (!k.flag("enable_moe_block", false)) return;
  e.n = k.integer({"num_experts"});
  e.per_token = k.integer({"top_k_experts"});
  e.ffn = k.integer({"moe_intermediate_size"});
  if (e.n == 0 || e.ffn == 0)
    k.unsupported(str("enable_moe_block is true with a num_experts of ", e.n,
                      " and a moe_intermediate_size of ", e.ffn));
}

/// What models for phones have, and attention both ways.
void refuse_others(Keys& k) {
  if (const std::int64_t n = k.integer({"hidden_size_per_layer_input"}, 256); n != 0)
    k.unsupported(str("hidden_size_per_layer_input is ", n,
                      k.has("hidden_size_per_layer_input") ? "" : " without the key"));
  if (const std::int64_t n = k.integer({"num_kv_shared_layers"}, 0); n != 0)
    k.unsupported(str("num_kv_shared_layers is ", n));
  k.must_be("use_double_wide_mlp", false, false);
  if (const json* const both = k.find({"use_bidirectional_attention"}); both != nullptr && *both != "vision")
    k.unsupported(str("use_bidirectional_attention is ", both->dump().substr(0, 80)));
}

}  // namespace

void read_gemma4(Keys& k, DecoderConfig& c) {
  read_types(k, c);
  read_heads(k, c);
  read_ropes(k, c);
  read_experts(k, c.experts);
  refuse_others(k);
  const char* const cap = "final_logit_softcapping";
  c.logit_softcap = k.find({cap}) == nullptr ? 0.0f : k.positive({cap});
}

json gemma4_json(const DecoderConfig& c) {
  const FullHeads& f = *c.full_heads;
  const bool all_turn = f.rotary_share == 1 && c.frequencies.factor == 1;
  json full = {{"rope_type", all_turn ? "default" : "proportional"},
               {"rope_theta", decimal(c.frequencies.theta)}};
  if (!all_turn) full["partial_rotary_factor"] = f.rotary_share;
  if (c.frequencies.factor != 1) full["factor"] = decimal(c.frequencies.factor);
  const ExpertsConfig& e = c.experts;
  const auto of_experts = [&](std::int64_t n) { return e.n > 0 ? json(n) : json(nullptr); };
  json j = {{"global_head_dim", f.head_dim},
            {"num_global_key_value_heads", f.kv_heads},
            {"attention_k_eq_v", f.keys_as_values},
            {"sliding_window", c.window},
            {"final_logit_softcapping", c.logit_softcap > 0 ? json(decimal(c.logit_softcap)) : json(nullptr)},
            {"hidden_activation", "gelu_pytorch_tanh"},
            {"hidden_size_per_layer_input", 0},
            {"num_kv_shared_layers", 0},
            {"use_double_wide_mlp", false},
            {"enable_moe_block", e.n > 0},
            {"num_experts", of_experts(e.n)},
            {"top_k_experts", of_experts(e.per_token)},
            {"moe_intermediate_size", of_experts(e.ffn)}};
  j["layer_types"] = json::array();
  for (const bool slides : c.sliding)
    j["layer_types"].push_back(slides ? "sliding_attention" : "full_attention");
  j[kParameters] = {{"full_attention", full},
                    {"sliding_attention",
                     {{"rope_type", "default"}, {"rope_theta", decimal(c.sliding_frequencies->theta)}}}};
  return j;
}

}  // namespace strata::detail
