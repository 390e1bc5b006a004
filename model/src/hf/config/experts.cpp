#include "hf/config/experts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "family/family.h"

namespace strata::detail {
namespace {

/// Qwen's dense layers: those of mlp_only_layers, and all but every decoder_sparse_step-th.
void read_dense_layers(Keys& k, DecoderConfig& c) {
  const std::int64_t every = k.integer({"decoder_sparse_step"}, 1);
  if (every < 1) return k.unsupported("decoder_sparse_step is 0");
  for (std::int64_t i = 0; i < c.layers; ++i) c.experts.layers.push_back((i + 1) % every == 0);
  const json* const dense = k.find({"mlp_only_layers"});
  if (dense == nullptr) return;
  if (!dense->is_array()) return k.unsupported("mlp_only_layers is not a list");
  for (const json& layer : *dense) {
    if (!layer.is_number_integer())
      return k.unsupported(str("mlp_only_layers has ", layer.dump().substr(0, 80)));
    if (const auto i = layer.get<std::int64_t>(); i >= 0 && i < c.layers)
      c.experts.layers[static_cast<std::size_t>(i)] = false;
  }
}

/// GLM-4.7-Flash's dense layers, which have to come first.
void read_mlp_types(Keys& k, DecoderConfig& c) {
  const json* const types = k.find({"mlp_layer_types"});
  if (types == nullptr) return;
  if (!types->is_array() || std::ssize(*types) != c.layers)
    return k.unsupported(str("mlp_layer_types is not a list of ", c.layers));
  c.experts.dense_layers = 0;
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const json& type = (*types)[static_cast<std::size_t>(i)];
    if (type == "dense" && c.experts.dense_layers == i)
      ++c.experts.dense_layers;
    else if (type != "sparse")
      return k.unsupported(str("mlp_layer_types has ", type.dump().substr(0, 80), " at layer ", i,
                               "; layers are dense, and then sparse"));
  }
}

/// DeepSeek-V2's choice of groups.
void read_group_choice(Keys& k, kernels::RouterRule& rule) {
  const std::string how = k.text({"topk_method"}, "greedy");
  rule.by_best = how == "group_limited_greedy";
  if (how == "greedy") rule.groups = rule.top_groups = 1;
  if (how != "greedy" && !rule.by_best) k.unsupported(str("topk_method is ", how));
  if (rule.by_best && (rule.groups == 0 || rule.top_groups == 0))
    k.unsupported("topk_method is group_limited_greedy without n_group and topk_group");
}

/// What the keys of GLM-4.5 and of those that have the same are without the key.
struct GroupDefaults {
  std::int64_t shared, dense_layers, groups, top_groups;
  double scale;
};

/// Which layers of a Nemotron-H are mixtures, and whether any is.
bool read_mixtures(Keys& k, DecoderConfig& c) {
  const json* const types = k.find({"layer_types", "layers_block_type"});
  std::vector<bool> layers;
  if (types != nullptr && types->is_array())
    for (const json& type : *types) layers.push_back(type == "moe");
  if (std::count(layers.begin(), layers.end(), true) == 0) return false;
  c.experts.layers = std::move(layers);
  return true;
}

void read_grouped_experts(Keys& k, DecoderConfig& c, HfExperts how) {
  using enum HfExperts;
  ExpertsConfig& e = c.experts;
  const GroupDefaults otherwise = how == deepseek_v2   ? GroupDefaults{2, 0, 0, 0, 1}
                                  : how == deepseek_v3 ? GroupDefaults{1, 3, 8, 4, 2.5}
                                  : how == glm_lite    ? GroupDefaults{1, 1, 1, 1, 1.8}
                                                       : GroupDefaults{1, 1, 1, 1, 1};
  e.n = k.integer({"n_routed_experts", "num_local_experts", "num_experts"});
  e.per_token = k.integer({"num_experts_per_tok"});
  e.ffn = k.integer({"moe_intermediate_size"});
  e.shared_ffn = how == nemotron ? k.integer({"moe_shared_expert_intermediate_size"}, 7688)
                                 : e.ffn * k.integer({"n_shared_experts"}, otherwise.shared);
  if (how == nemotron) e.latent = k.integer({"moe_latent_size"}, 0);
  const bool indexed = k.has("index_topk");  // DeepSeek-V3.2 and GLM-5 have both keys of dense layers
  if (how != nemotron && (how != glm_lite || indexed))
    e.dense_layers = k.integer({"first_k_dense_replace"}, otherwise.dense_layers);
  if (how == glm_lite || indexed) read_mlp_types(k, c);
  // DeepSeek-V2's routers do not look at the key.
  if (how != deepseek_v2) e.rule.renormalize = k.flag("norm_topk_prob", true);
  e.rule.scale = k.positive({"routed_scaling_factor"}, otherwise.scale);
  e.rule.groups = static_cast<std::int32_t>(k.integer({"n_group"}, otherwise.groups));
  e.rule.top_groups = static_cast<std::int32_t>(k.integer({"topk_group"}, otherwise.top_groups));
  if (how == deepseek_v2) read_group_choice(k, e.rule);
}

/// Granite 4's, whose MLP beside the experts is the only one without them.
void read_granite_experts(Keys& k, DecoderConfig& c) {
  ExpertsConfig& e = c.experts;
  const std::int64_t of_expert = c.ffn;
  c.ffn = k.integer({"shared_intermediate_size"}, 1024);
  e.n = k.integer({"num_local_experts"}, 8);
  if (e.n == 0) return;
  e.per_token = k.integer({"num_experts_per_tok"}, 2);
  e.ffn = of_expert;
  e.shared_ffn = c.ffn;
}

}  // namespace

void read_experts(Keys& k, DecoderConfig& c) {
  using enum HfExperts;
  const HfExperts how = family_of(c).hf.experts;
  if (how == none) return;
  c.experts.stacked_files = k.flag(kStackedExperts, c.experts.stacked_files);
  if (how == nemotron && !read_mixtures(k, c)) return;
  if (how == granite) return read_granite_experts(k, c);
  if (how >= deepseek_v2) return read_grouped_experts(k, c, how);
  ExpertsConfig& e = c.experts;
  e.n = k.integer({"num_experts", "num_local_experts"});
  e.per_token = k.integer({"num_experts_per_tok"});
  const bool own_width = how == qwen || how == lfm2;
  e.ffn = own_width ? k.integer({"moe_intermediate_size"}) : c.ffn;  // qwen3_5's is that key, too
  if (own_width && e.ffn == 0 && k.find({"moe_intermediate_size"}) != nullptr)
    k.unsupported("moe_intermediate_size is 0");
  if (how == gpt_oss) {
    e.gate_limit = k.positive({"swiglu_limit"}, 7.0);
    e.gate_alpha = k.positive({"swiglu_alpha"}, 1.702);
  }
  if (how == lfm2) {
    e.dense_layers = k.integer({"num_dense_layers"}, e.dense_layers);
    e.choice_bias = k.flag("use_expert_bias", true);
    e.rule.scale = k.positive({"routed_scaling_factor"}, 1.0);
  }
  if (how == qwen || how == olmoe || how == lfm2)
    e.rule.renormalize = k.flag("norm_topk_prob", e.rule.renormalize);
  if (how == qwen) read_dense_layers(k, c);
  if (e.shared_gate) {
    e.shared_ffn = k.integer({"shared_expert_intermediate_size"});
    if (family_of(c).hf.attention_bias == HfKey::ignored) c.qkv_bias = k.flag("qkv_bias", c.qkv_bias);
  }
  if (k.find({"clip_qkv"}) != nullptr) k.unsupported("clip_qkv limits queries, keys and values");
}

}  // namespace strata::detail
