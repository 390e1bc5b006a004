#include "gguf/read/config.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <utility>

#include <strata/runtime/str.h>

#include "gguf/tensors.h"

namespace strata::detail {
namespace {

using Scaling = RopeFrequencies::Scaling;

constexpr std::int64_t kMaxLayers = 10000;
constexpr std::int64_t kMaxCount = 1 << 20;

// Keys that say nothing about what is computed, behind the architecture's name.
constexpr std::string_view kIdle[] = {"vocab_size", "rope.scaling.finetuned",
                                      "rope.scaling.original_context_length", "tensor_data_layout"};

/// The keys of an architecture. Problems are collected.
class GgufKeys {
 public:
  GgufKeys(const GgufReader& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  bool has(std::string_view name) const { return file_.metadata().contains(prefix_ + std::string(name)); }
  /// Without `otherwise`, the key must be there.
  std::int64_t integer(std::string_view name, std::int64_t otherwise = -1) {
    return take(name, otherwise, "an integer", otherwise >= 0);
  }
  /// Finite and not negative.
  double number(std::string_view name, double otherwise = -1) {
    const double x = take(name, otherwise, "a number", otherwise >= 0);
    if (std::isfinite(x) && (x >= 0 || x == otherwise)) return x;
    corrupt(str("the key ", prefix_, name, " is ", x));
    return 1;
  }
  std::string text(std::string_view name, std::string otherwise) {
    return take(name, std::move(otherwise), "a text", true);
  }
  bool flag(std::string_view name, bool otherwise) { return take(name, otherwise, "true or false", true); }
  /// A small number that is not negative.
  std::int64_t count(std::string_view name, std::int64_t otherwise = -1) {
    const std::int64_t n = integer(name, otherwise);
    if (n == otherwise || (n >= 0 && n <= kMaxCount)) return n;
    corrupt(str("the key ", prefix_, name, " is ", n, "; it must be 0 to ", kMaxCount));
    return 1;
  }
  /// Refuses a key with another value than the one that is implied.
  void must_be(std::string_view name, std::int64_t value) {
    if (const std::int64_t is = integer(name, value); is != value)
      unsupported(str(prefix_, name, " is ", is));
  }
  void unsupported(const std::string& what) { add(unsupported_, what); }
  void corrupt(const std::string& what) { add(corrupt_, what); }
  void know(std::string_view name) { known_.insert(prefix_ + std::string(name)); }
  bool knows(std::string_view name) const { return known_.contains(prefix_ + std::string(name)); }
  const std::string& prefix() const noexcept { return prefix_; }

  /// All problems, also of keys that nobody asked for.
  Status status() {
    for (const std::string_view name : kIdle) know(name);
    for (const auto& [key, value] : file_.metadata())
      if (key.starts_with(prefix_) && !known_.contains(key))
        unsupported(str("the key ", key, " is not known"));
    if (!corrupt_.empty()) return Status::error(Code::corrupt, corrupt_);
    return unsupported_.empty() ? Status::ok() : Status::error(Code::unsupported, unsupported_);
  }

 private:
  template <class T>
  T take(std::string_view name, T otherwise, const char* kind, bool may_lack) {
    const std::string key = prefix_ + std::string(name);
    known_.insert(key);
    const auto at = file_.metadata().find(key);
    if (at == file_.metadata().end()) {
      if (!may_lack) corrupt(str("the key ", key, " is missing"));
      return otherwise;
    }
    if (const T* const value = std::get_if<T>(&at->second)) return *value;
    corrupt(str("the key ", key, " is not ", kind));
    return otherwise;
  }
  static void add(std::string& to, const std::string& what) { to += str(to.empty() ? "" : "\n", what); }

  const GgufReader& file_;
  const std::string prefix_;
  std::set<std::string, std::less<>> known_;
  std::string corrupt_, unsupported_;
};

class ConfigReader {
 public:
  ConfigReader(const GgufReader& file, const Family& family)
      : file_(file),
        keys_(file, std::string(family.gguf.name)),
        architecture_(family.gguf),
        c_(*decoder_for_family(family.name)) {}

  Result<DecoderConfig> read() {
    read_sizes();
    read_biases();
    if (c_.position == DecoderConfig::Position::rope) read_rope();
    read_attention();
    if (architecture_.experts.any) read_experts();
    if (architecture_.factors) read_model_factors();
    for (const char* name : {"expert_count", "expert_used_count", "attention.clamp_kqv", "logit_scale",
                             "residual_scale", "embedding_scale", "attention.scale"})
      if (keys_.has(name) && !keys_.knows(name)) refuse_if_set(name);
    STRATA_TRY(keys_.status());
    STRATA_TRY(settle_head());
    DecoderConfig trial = c_;
    trial.seq = 1;
    STRATA_TRY(validate(trial));
    return c_;
  }

 private:
  bool has_tensor(std::string_view name) const { return file_.tensors().find(name) != file_.tensors().end(); }

  void refuse_if_set(std::string_view name) {
    keys_.know(name);
    const GgufValue& value = file_.metadata().find(keys_.prefix() + std::string(name))->second;
    const auto* const n = std::get_if<std::int64_t>(&value);
    const auto* const x = std::get_if<double>(&value);
    if ((n != nullptr && *n != 0) || (x != nullptr && *x != 0) || (n == nullptr && x == nullptr))
      keys_.unsupported(str("the key ", keys_.prefix(), name, " is set"));
  }

  void read_sizes() {
    c_.layers = keys_.integer("block_count");
    // The last ones may predict further tokens, and are not read.
    if (architecture_.experts.rule_keys && c_.layers > 0) c_.layers -= keys_.count("nextn_predict_layers", 0);
    c_.hidden = keys_.integer("embedding_length");
    c_.heads = keys_.integer("attention.head_count");
    c_.kv_heads = keys_.integer("attention.head_count_kv", c_.heads);
    const std::int64_t head = c_.heads > 0 ? c_.hidden / c_.heads : 0;
    c_.head_dim = keys_.integer("attention.key_length", head);
    keys_.must_be("attention.value_length", c_.head_dim);
    c_.ffn = keys_.integer("feed_forward_length");
    c_.positions = keys_.integer("context_length");
    c_.norm_eps = static_cast<float>(keys_.number(c_.norm == DecoderConfig::Norm::rms
                                                      ? "attention.layer_norm_rms_epsilon"
                                                      : "attention.layer_norm_epsilon"));
    const auto tokens = file_.tensors().find("token_embd.weight");
    if (tokens == file_.tensors().end())
      keys_.corrupt("token_embd.weight is missing");
    else
      c_.vocab = static_cast<std::int64_t>(tokens->second.tensor.shape.front());
    if (c_.layers > kMaxLayers) keys_.corrupt(str("the key ", keys_.prefix(), "block_count is ", c_.layers));
  }

  void read_biases() {
    if (c_.norm == DecoderConfig::Norm::layer) return;
    c_.qkv_bias = has_tensor("blk.0.attn_q.bias") || has_tensor("blk.0.attn_qkv.bias");
    c_.out_bias = has_tensor("blk.0.attn_output.bias");
    c_.mlp_bias = has_tensor("blk.0.ffn_down.bias");
    if (has_tensor("blk.0.attn_q_norm.weight") && c_.qk_norm == DecoderConfig::QkNorm::none)
      c_.qk_norm = DecoderConfig::QkNorm::heads;  // GLM-4.5 may have them
  }

  void read_rope() {
    RopeFrequencies& f = c_.frequencies;
    f = {.truncate = !architecture_.yarn_unrounded};  // nothing is left of a family's own scaling
    const bool is_half = c_.rotary_interleaved || c_.rotary_divisor == 2;
    c_.rotary_dim = keys_.integer("rope.dimension_count", is_half ? 0 : c_.head_dim);
    f.theta = static_cast<float>(keys_.number("rope.freq_base", 10000));
    if (c_.sliding_frequencies)
      c_.sliding_frequencies->theta = static_cast<float>(keys_.number("rope.freq_base_swa", 10000));
    const std::string type = keys_.text("rope.scaling.type", "none");
    if (type == "linear") {
      f.scaling = Scaling::linear;
      f.factor = static_cast<float>(keys_.number("rope.scaling.factor"));
    } else if (type == "yarn") {
      read_yarn(f);
    } else if (type != "none") {
      keys_.unsupported(str("the key ", keys_.prefix(), "rope.scaling.type is ", type));
    }
    if (has_tensor("rope_freqs.weight")) read_factors(f);
  }

  void read_yarn(RopeFrequencies& f) {
    f.scaling = Scaling::yarn;
    f.factor = static_cast<float>(keys_.number("rope.scaling.factor"));
    f.original_positions =
        static_cast<float>(keys_.integer("rope.scaling.original_context_length", c_.positions));
    const float grown = f.factor > 1 ? 0.1f * std::log(f.factor) + 1.0f : 1.0f;
    const auto share = static_cast<float>(keys_.number("rope.scaling.attn_factor", 1));
    f.attention_factor = share * grown;
    // A value that is the paper's formula in f64 is set to just that; the product may have lost a bit.
    const auto own =
        static_cast<float>(f.factor > 1 ? 0.1 * std::log(static_cast<double>(f.factor)) + 1.0 : 1.0);
    if (std::abs(f.attention_factor - own) < 1e-6f) f.attention_factor = own;
  }

  void read_experts() {
    ExpertsConfig& e = c_.experts;
    const GgufExperts& has = architecture_.experts;
    e.n = keys_.integer("expert_count");
    e.per_token = keys_.integer("expert_used_count");
    // Without the key llama.cpp divides the inner width among the experts of a token.
    const std::int64_t share = e.per_token > 0 ? c_.ffn / e.per_token : 0;
    e.ffn = has.ffn_key ? keys_.integer("expert_feed_forward_length", share) : c_.ffn;
    if (e.shared_gate) e.shared_ffn = keys_.integer("expert_shared_feed_forward_length", c_.ffn);
    if (has.rule_keys)
      read_rule();
    else
      expect_rule(has);
    const auto gates = file_.tensors().find(str("blk.", e.dense_layers, ".ffn_gate_inp.weight"));
    if (gates == file_.tensors().end()) return;  // locate_tensors() says so
    if (const std::uint64_t n = gates->second.tensor.shape.front(); n != static_cast<std::uint64_t>(e.n))
      keys_.corrupt(str("the key ", keys_.prefix(), "expert_count is ", e.n, ", but ", gates->first,
                        " has rows for ", n, " experts"));
  }

  void read_rule() {
    ExpertsConfig& e = c_.experts;
    e.dense_layers = keys_.count("leading_dense_block_count", 0);
    const std::int64_t shared = keys_.count("expert_shared_count");
    e.shared_ffn = e.ffn >= 0 && e.ffn <= kMaxCount ? e.ffn * shared : 0;  // validate() reports such an e.ffn
    keys_.must_be("expert_gating_func", kGgufSigmoid);
    e.rule.renormalize = keys_.flag("expert_weights_norm", false);
    if (const auto x = static_cast<float>(keys_.number("expert_weights_scale", 0)); x > 0) e.rule.scale = x;
    e.rule.groups = static_cast<std::int32_t>(keys_.count("expert_group_count", 1));
    e.rule.top_groups = static_cast<std::int32_t>(keys_.count("expert_group_used_count", 1));
  }

  // llama.cpp has one rule for the architecture, whatever a file says.
  void expect_rule(const GgufExperts& has) {
    c_.experts.rule.renormalize = has.renormalizes;
    keys_.must_be("expert_gating_func", kGgufSoftmax);
    if (keys_.flag("expert_weights_norm", has.renormalizes) != has.renormalizes)
      keys_.unsupported(str(keys_.prefix(), "expert_weights_norm is ", has.renormalizes ? "false" : "true"));
    if (const double scale = keys_.number("expert_weights_scale", 1); scale != 0 && scale != 1)
      keys_.unsupported(str(keys_.prefix(), "expert_weights_scale is ", scale));
  }

  // llama.cpp takes a 0 for a key that is missing.
  void read_model_factors() {
    const auto read = [&](const char* name, float otherwise) {
      const auto x = static_cast<float>(keys_.number(name, 0));
      return x > 0 ? x : otherwise;
    };
    c_.embedding_factor = read("embedding_scale", 1);
    c_.residual_factor = read("residual_scale", 1);
    c_.score_factor = read("attention.scale", 1 / std::sqrt(static_cast<float>(c_.head_dim)));
    c_.logit_divisor = read("logit_scale", 1);
  }

  void read_factors(RopeFrequencies& f) {
    const GgufEntry& entry = file_.tensors().find("rope_freqs.weight")->second;
    std::vector<float> factors(entry.tensor.n_elems());
    const bool is_read = factors.size() <= 4096 && file_.read(entry, 0, factors).is_ok();
    if (!is_read || f.scaling != Scaling::none || !find_llama3_scaling(factors, c_.rotary_dim, f))
      keys_.unsupported("rope_freqs.weight has other divisors than the scaling llama3 makes");
  }

  void read_attention() {
    if (architecture_.slides || architecture_.window_key)
      c_.window = keys_.integer("attention.sliding_window", 0);
    if (architecture_.slides) read_pattern();
    if (c_.score_softcap > 0)
      c_.score_softcap = static_cast<float>(keys_.number("attn_logit_softcapping", 50));
    if (architecture_.logit_softcap)
      c_.logit_softcap =
          static_cast<float>(keys_.number("final_logit_softcapping", static_cast<double>(c_.logit_softcap)));
    if (c_.norm_offset > 0 && c_.heads > 0)
      c_.query_scalar = static_cast<float>(gguf_divisor_of_scores(architecture_, c_));
  }

  // A list with a flag for each layer, or the number of layers of which the last sees all keys.
  void read_pattern() {
    constexpr const char* kName = "attention.sliding_window_pattern";
    if (!keys_.has(kName)) return;
    keys_.know(kName);
    const std::string key = keys_.prefix() + kName;
    if (const auto* const every = file_.find<std::int64_t>(key)) {
      if (*every < 1) return keys_.unsupported(str("the key ", key, " is ", *every));
      c_.full_every = *every;
    } else if (const auto* const flags = file_.find<std::vector<bool>>(key)) {
      if (std::ssize(*flags) != c_.layers)
        return keys_.corrupt(str("the key ", key, " has ", flags->size(), " layers of ", c_.layers));
      c_.sliding = *flags;
    } else {
      keys_.corrupt(str("the key ", key, " is neither a number nor a list of flags"));
    }
  }

  // Some files repeat the embedding as the head.
  Status settle_head() {
    const auto head = file_.tensors().find("output.weight"),
               tokens = file_.tensors().find("token_embd.weight");
    c_.tied_head = true;
    if (head == file_.tensors().end()) return {};
    STRATA_TRY_ASSIGN(c_.tied_head, file_.are_equal(head->second, tokens->second));
    return {};
  }

  const GgufReader& file_;
  GgufKeys keys_;
  const GgufArchitecture& architecture_;
  DecoderConfig c_;
};

float rounded_to(double x, double unit) { return static_cast<float>(std::round(x / unit) * unit); }

bool makes(const RopeFrequencies& f, std::span<const float> factors, std::int64_t rotary_dim) {
  const std::vector<float> made = llama3_factors(f, rotary_dim);
  return std::equal(made.begin(), made.end(), factors.begin(), factors.end(),
                    [](float a, float b) { return std::abs(a - b) <= 2e-6f * b; });
}

}  // namespace

// Where a divisor d is between 1 and the factor, blend = (1 / d - 1 / factor) / (1 - 1 / factor) is linear in
// the frequency: (original frequency / 2 pi - low) / (high - low). Two of them give the line, and one does
// with the high_freq_factor of LLaMA 3.
bool find_llama3_scaling(std::span<const float> factors, std::int64_t rotary_dim, RopeFrequencies& f) {
  if (factors.empty() || std::ssize(factors) != rotary_dim / 2) return false;
  RopeFrequencies found = f;
  found.scaling = Scaling::llama3;
  found.factor = rounded_to(static_cast<double>(*std::max_element(factors.begin(), factors.end())), 1.0 / 64);
  const auto take_if = [&](float high, double original) {
    found.high_freq_factor = high;
    found.original_positions = rounded_to(original, 1.0);
    const bool same = makes(found, factors, rotary_dim);
    if (same) f = found;
    return same;
  };
  if (take_if(4, 8192)) return true;
  std::vector<std::pair<double, double>> line;
  const double slowest = 1.0 / static_cast<double>(found.factor);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double blend = (1.0 / static_cast<double>(factors[i]) - slowest) / (1.0 - slowest);
    const double frequency = std::pow(static_cast<double>(f.theta),
                                      -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
    if (blend > 1e-4 && blend < 1 - 1e-4) line.emplace_back(2 * std::numbers::pi / frequency, blend);
  }
  if (line.empty()) return false;
  if (take_if(4, line.front().first * (1 + 3 * line.front().second))) return true;
  if (line.size() < 2) return false;
  const double slope =
      (line.front().second - line.back().second) / (1 / line.front().first - 1 / line.back().first);
  const float high = rounded_to(1.0 - 1.0 / (line.front().second - slope / line.front().first), 1.0 / 64);
  return take_if(high, slope * static_cast<double>(high - 1));
}

Result<DecoderConfig> config_from_gguf(const GgufReader& file) {
  const auto* const name = file.find<std::string>("general.architecture");
  if (name == nullptr) return Status::error(Code::corrupt, "the key general.architecture is missing");
  if (const auto* const n = file.find<std::int64_t>("split.count"); n != nullptr && *n > 1)
    return Status::error(Code::unsupported, str("split.count is ", *n, ": the model is in ", *n,
                                                " files; make one of them with llama-gguf-split --merge"));
  const auto* const experts = file.find<std::int64_t>(*name + ".expert_count");
  const Family* const family = family_of_gguf(*name, experts != nullptr && *experts > 0);
  if (family == nullptr)
    return Status::error(Code::unsupported, str("general.architecture is ", *name, "; ",
                                                gguf_architecture_names(), " are read"));
  return ConfigReader(file, *family).read();
}

}  // namespace strata::detail
