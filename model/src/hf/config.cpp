#include <strata/model/hf/config.h>

#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include <strata/runtime/str.h>

#include "strict_json.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr double kMaxFloat = static_cast<double>(std::numeric_limits<float>::max());

/// Reads keys of one config and gathers what is wrong.
class Keys {
 public:
  explicit Keys(const json& object) : object_(object) {}

  /// The first of the names that is there and not null.
  const json* find(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (const auto at = object_.find(name); at != object_.end() && !at->is_null()) return &*at;
    return nullptr;
  }
  std::int64_t integer(std::initializer_list<const char*> names, std::optional<std::int64_t> otherwise = {}) {
    const json* value = find(names);
    if (value == nullptr && otherwise) return *otherwise;
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    if (value != nullptr && value->is_number_integer() && value->get<double>() >= 0 &&
        value->get<double>() <= static_cast<double>(kMost))
      return value->get<std::int64_t>();
    wrong(*names.begin(), value, "a number from 0 to 2^31");
    return 0;
  }
  double number(std::initializer_list<const char*> names, std::optional<double> otherwise = {}) {
    const json* value = find(names);
    if (value == nullptr && otherwise) return *otherwise;
    // Computed with in f32, where a larger one is infinite.
    if (value != nullptr && value->is_number() && std::abs(value->get<double>()) <= kMaxFloat)
      return value->get<double>();
    wrong(*names.begin(), value, "a number");
    return 0;
  }
  /// One that is above 0 in f32 too.
  float positive(std::initializer_list<const char*> names, std::optional<double> otherwise = {}) {
    const std::size_t before = problems_.size();
    const auto n = static_cast<float>(number(names, otherwise));
    if (!(n > 0) && problems_.size() == before) wrong(*names.begin(), find(names), "above 0");
    return n;
  }
  bool flag(const char* name, bool otherwise) {
    const json* value = find({name});
    if (value == nullptr) return otherwise;
    if (value->is_boolean()) return value->get<bool>();
    wrong(name, value, "true or false");
    return otherwise;
  }
  std::string text(std::initializer_list<const char*> names, const std::string& otherwise) {
    const json* value = find(names);
    if (value == nullptr) return otherwise;
    if (value->is_string()) return value->get<std::string>();
    wrong(*names.begin(), value, "a text");
    return otherwise;
  }
  /// A setting that this build has in one form only.
  void must_be(const char* name, bool want, bool otherwise) {
    if (flag(name, otherwise) != want) unsupported(str(name, " is ", want ? "false" : "true"));
  }
  void must_be_one_of(const char* name, const std::string& value, std::span<const std::string_view> allowed) {
    for (const std::string_view known : allowed)
      if (value == known) return;
    unsupported(str(name, " is ", value));
  }
  void unsupported(const std::string& what) {
    problems_ += str(problems_.empty() ? "" : "\n", what, ", which this build does not have");
  }

  Status status() const {
    if (problems_.empty()) return {};
    return Status::error(broken_ ? Code::invalid : Code::unsupported, problems_);
  }
  Keys within(const json& object) const { return Keys(object); }
  void take(const Keys& other) {
    if (other.problems_.empty()) return;
    problems_ += str(problems_.empty() ? "" : "\n", other.problems_);
    broken_ = broken_ || other.broken_;
  }

 private:
  void wrong(const char* name, const json* value, const char* want) {
    broken_ = true;
    problems_ +=
        str(problems_.empty() ? "" : "\n", name, " is ",
            value == nullptr ? std::string("missing") : value->dump().substr(0, 80), "; it must be ", want);
  }
  const json& object_;
  std::string problems_;
  bool broken_ = false;
};

constexpr std::string_view kTanhGelu[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"};
constexpr std::string_view kRelu[] = {"relu"};
constexpr std::string_view kSilu[] = {"silu", "swish"};

void read_gpt2(Keys& k, DecoderConfig& c) {
  c.layers = k.integer({"n_layer", "num_hidden_layers"});
  c.hidden = k.integer({"n_embd", "hidden_size"});
  c.heads = k.integer({"n_head", "num_attention_heads"});
  c.ffn = k.integer({"n_inner"}, 4 * c.hidden);
  c.positions = k.integer({"n_positions", "max_position_embeddings"});
  c.norm_eps = k.positive({"layer_norm_epsilon"}, 1e-5);
  k.must_be_one_of("activation_function", k.text({"activation_function"}, "gelu_new"), kTanhGelu);
  k.must_be("scale_attn_weights", true, true);
  k.must_be("scale_attn_by_inverse_layer_idx", false, false);
  k.must_be("add_cross_attention", false, false);
}

void read_opt(Keys& k, DecoderConfig& c) {
  c.layers = k.integer({"num_hidden_layers"});
  c.hidden = k.integer({"hidden_size"});
  c.heads = k.integer({"num_attention_heads"});
  c.ffn = k.integer({"ffn_dim"});
  c.positions = k.integer({"max_position_embeddings"});
  k.must_be_one_of("activation_function", k.text({"activation_function"}, "relu"), kRelu);
  k.must_be("do_layer_norm_before", true, true);
  k.must_be("enable_bias", true, true);
  k.must_be("layer_norm_elementwise_affine", true, true);
  k.must_be("_remove_final_layer_norm", false, false);
  if (const std::int64_t width = k.integer({"word_embed_proj_dim"}, c.hidden); width != c.hidden)
    k.unsupported(str("word_embed_proj_dim is ", width, " and hidden_size ", c.hidden));
}

void read_bloom(Keys& k, DecoderConfig& c) {
  c.layers = k.integer({"n_layer", "num_hidden_layers"});
  c.hidden = k.integer({"hidden_size", "n_embed"});
  c.heads = k.integer({"n_head", "num_attention_heads"});
  c.ffn = 4 * c.hidden;  // whatever n_inner says: no implementation reads it
  c.norm_eps = k.positive({"layer_norm_epsilon"}, 1e-5);
  k.must_be("apply_residual_connection_post_layernorm", false, false);
}

void read_scaling(Keys& k, const json& scaling, DecoderConfig& c) {
  using Scaling = kernels::RopeFrequencies::Scaling;
  if (!scaling.is_object()) return k.unsupported(str("rope_scaling is ", scaling.dump().substr(0, 80)));
  Keys s = k.within(scaling);
  kernels::RopeFrequencies& f = c.frequencies;
  f.theta = s.positive({"rope_theta"}, static_cast<double>(f.theta));
  const std::string type = s.text({"rope_type", "type"}, "default");
  if (type == "linear") {
    f.scaling = Scaling::linear;
    f.factor = s.positive({"factor"});
  } else if (type == "llama3") {
    f.scaling = Scaling::llama3;
    f.factor = s.positive({"factor"});
    f.low_freq_factor = s.positive({"low_freq_factor"});
    f.high_freq_factor = s.positive({"high_freq_factor"});
    f.original_positions = static_cast<float>(s.integer({"original_max_position_embeddings"}));
  } else if (type != "default") {
    s.unsupported(str("rope_scaling.rope_type is ", type));
  }
  k.take(s);
}

void read_llama(Keys& k, DecoderConfig& c) {
  c.layers = k.integer({"num_hidden_layers"});
  c.hidden = k.integer({"hidden_size"});
  c.heads = k.integer({"num_attention_heads"});
  c.kv_heads = k.integer({"num_key_value_heads"}, c.heads);
  c.head_dim = k.integer({"head_dim"}, c.family == "qwen3" || c.post_norms || c.rotary_interleaved ? 128 : 0);
  c.ffn = k.integer({"intermediate_size"});
  c.positions = k.integer({"max_position_embeddings"}, 0);
  c.norm_eps = k.positive({"rms_norm_eps"}, static_cast<double>(c.norm_eps));
  c.frequencies.theta = k.positive({"rope_theta"}, 10000.0);
  for (const char* name : {"rope_scaling", "rope_parameters"})
    if (const json* scaling = k.find({name}); scaling != nullptr) read_scaling(k, *scaling, c);
  k.must_be_one_of("hidden_act", k.text({"hidden_act", "hidden_activation"}, "silu"), kSilu);
  k.must_be("use_sliding_window", false, false);
  if (c.family != "qwen2") {
    const bool bias = k.flag("attention_bias", c.rotary_interleaved);
    c.qkv_bias = bias;
    c.out_bias = bias && !c.rotary_interleaved;  // GLM's output projection has none
  }
  c.mlp_bias = k.flag("mlp_bias", false);
  if (k.integer({"pretraining_tp"}, 1) != 1) k.unsupported("pretraining_tp is not 1");
  if (c.rotary_interleaved) {
    double share = k.number({"partial_rotary_factor"}, 0.5);
    if (const json* rope = k.find({"rope_parameters"});
        rope != nullptr && rope->contains("partial_rotary_factor"))
      share = k.within(*rope).number({"partial_rotary_factor"});
    if (!(share >= 0 && share <= 1)) {
      k.unsupported(str("partial_rotary_factor is ", share));
      share = 0;
    }
    c.rotary_dim = static_cast<std::int64_t>(static_cast<double>(c.head_dim) * share);
  } else if (k.find({"partial_rotary_factor"}) != nullptr && k.number({"partial_rotary_factor"}) != 1.0) {
    k.unsupported("partial_rotary_factor is not 1");
  }
}

}  // namespace

Result<DecoderConfig> decoder_from_hf_config(const std::string& text) {
  STRATA_TRY_ASSIGN(const json root, detail::parse_strict_json(text));
  if (!root.is_object()) return Status::error(Code::corrupt, "it is no object");
  Keys keys(root);
  const std::string family = keys.text({"model_type"}, "");
  auto config = decoder_of_family(family);
  if (!config) {
    std::string known;
    for (const std::string_view name : decoder_families()) known += str(known.empty() ? "" : ", ", name);
    return Status::error(Code::unsupported, str("model_type is '", family, "'; this build knows ", known));
  }
  DecoderConfig& c = *config;
  c.vocab = keys.integer({"vocab_size"});
  if (family == "gpt2") read_gpt2(keys, c);
  if (family == "opt") read_opt(keys, c);
  if (family == "bloom") read_bloom(keys, c);
  if (c.position == DecoderConfig::Position::rope) read_llama(keys, c);
  c.tied_head = keys.flag("tie_word_embeddings", c.tied_head);
  if (keys.find({"quantization_config"}) != nullptr) keys.unsupported("quantization_config is given");
  STRATA_TRY(keys.status());
  DecoderConfig trial = c;  // whatever the length, the rest must hold
  trial.seq = 1;
  STRATA_TRY(validate(trial));
  return c;
}

namespace {

json rope_of(const DecoderConfig& c) {
  using Scaling = kernels::RopeFrequencies::Scaling;
  const kernels::RopeFrequencies& f = c.frequencies;
  if (f.scaling == Scaling::none) return nullptr;
  if (f.scaling == Scaling::linear) return {{"rope_type", "linear"}, {"factor", f.factor}};
  return {{"rope_type", "llama3"},
          {"factor", f.factor},
          {"low_freq_factor", f.low_freq_factor},
          {"high_freq_factor", f.high_freq_factor},
          {"original_max_position_embeddings", static_cast<std::int64_t>(f.original_positions)}};
}

// A float as the shortest decimal that reads back as it: 1e-05 and not 9.999999747378752e-06.
double decimal(float x) { return std::stod(str(x)); }

json llama_json(const DecoderConfig& c) {
  json j = {{"num_hidden_layers", c.layers},
            {"hidden_size", c.hidden},
            {"num_attention_heads", c.heads},
            {"num_key_value_heads", c.kv_heads},
            {"head_dim", c.head_dim},
            {"intermediate_size", c.ffn},
            {"max_position_embeddings", c.positions},
            {"rms_norm_eps", decimal(c.norm_eps)},
            {"rope_theta", decimal(c.frequencies.theta)},
            {"rope_scaling", rope_of(c)},
            {"hidden_act", "silu"}};
  if (c.family != "qwen2") j["attention_bias"] = c.qkv_bias;
  if (c.family == "llama") j["mlp_bias"] = c.mlp_bias;
  if (c.rotary_interleaved)
    j["partial_rotary_factor"] = static_cast<double>(c.rotary_dim) / static_cast<double>(c.head_dim);
  return j;
}

json family_json(const DecoderConfig& c) {
  if (c.family == "gpt2")
    return {{"n_layer", c.layers},
            {"n_embd", c.hidden},
            {"n_head", c.heads},
            {"n_inner", c.ffn},
            {"n_positions", c.positions},
            {"layer_norm_epsilon", decimal(c.norm_eps)},
            {"activation_function", "gelu_new"},
            {"attn_pdrop", 0.0},
            {"embd_pdrop", 0.0},
            {"resid_pdrop", 0.0}};
  if (c.family == "opt")
    return {{"num_hidden_layers", c.layers},
            {"hidden_size", c.hidden},
            {"word_embed_proj_dim", c.hidden},
            {"num_attention_heads", c.heads},
            {"ffn_dim", c.ffn},
            {"max_position_embeddings", c.positions},
            {"activation_function", "relu"},
            {"do_layer_norm_before", true},
            {"dropout", 0.0}};
  if (c.family == "bloom")
    return {{"n_layer", c.layers},   {"hidden_size", c.hidden},
            {"n_head", c.heads},     {"layer_norm_epsilon", decimal(c.norm_eps)},
            {"hidden_dropout", 0.0}, {"attention_dropout", 0.0}};
  return llama_json(c);
}

const char* architecture(std::string_view family) {
  constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"gpt2", "GPT2LMHeadModel"},   {"opt", "OPTForCausalLM"},     {"bloom", "BloomForCausalLM"},
      {"llama", "LlamaForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"},
      {"glm", "GlmForCausalLM"},     {"glm4", "Glm4ForCausalLM"},
  };
  for (const auto& [name, known] : kNames)
    if (name == family) return known;
  return "";
}

}  // namespace

std::string hf_config_json(const DecoderConfig& config, DType dtype, const std::string& source) {
  const DecoderConfig c = filled(config);
  json j = {{"bos_token_id", nullptr}, {"eos_token_id", nullptr}, {"pad_token_id", nullptr}};
  if (const auto given = detail::parse_strict_json(source); given.has_value() && given->is_object())
    j.update(*given);
  j.update(family_json(c));
  j["model_type"] = c.family;
  j["architectures"] = json::array({architecture(c.family)});
  j["vocab_size"] = c.vocab;
  j["tie_word_embeddings"] = c.tied_head;
  const char* const name = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
  j["torch_dtype"] = name;
  if (j.contains("dtype")) j["dtype"] = name;  // what the key is called now
  return j.dump(2) + "\n";
}

}  // namespace strata
