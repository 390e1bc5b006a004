#include "gguf/tensors.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <strata/model/hf/tensors.h>
#include <strata/runtime/str.h>

#include "gguf/mix.h"

// A Hugging Face folder of each family has the same tensors, some with other rows: hf_tensors() lists them.

namespace strata::detail {
namespace {

constexpr double kPi = 3.14159265358979323846;

/// Names of parameters outside the layers, and in a layer behind "blk.N.".
constexpr std::pair<std::string_view, std::string_view> kGgufNames[] = {
    {"tokens", "token_embd"},
    {"positions", "position_embd"},
    {"embed_norm", "token_embd_norm"},
    {"final_norm", "output_norm"},
    {"head", "output"},
    {"attn_norm", "attn_norm"},
    {"q_norm", "attn_q_norm"},
    {"k_norm", "attn_k_norm"},
    {"attn_out", "attn_output"},
    {"attn_post_norm", "post_attention_norm"},
    {"mlp_norm", "ffn_norm"},
    {"mlp_out", "ffn_down"},
    {"mlp_post_norm", "post_ffw_norm"},
};

/// A parameter's name in its parts: "layers.3.qkv.bias" is layer "3", "qkv" and "bias".
struct ParamName {
  std::string_view layer, part, kind;
};
ParamName split_param(std::string_view param) {
  ParamName name;
  constexpr std::string_view kLayers = "layers.";
  if (param.starts_with(kLayers)) {
    param.remove_prefix(kLayers.size());
    name.layer = param.substr(0, param.find('.'));
    param.remove_prefix(name.layer.size() + 1);
  }
  const std::size_t dot = param.find('.');
  name.part = param.substr(0, dot);
  name.kind = param.substr(dot + 1);
  return name;
}

class PartList {
 public:
  PartList(const GgufArchitecture& architecture, DecoderConfig config, GgufMix mix)
      : architecture_(architecture), c_(std::move(config)), mix_(mix) {}

  std::vector<GgufPart> make() {
    const std::vector<HfTensor> tensors = hf_tensors(c_);
    for (const HfTensor& tensor : tensors) ++n_tensors_[tensor.param];
    for (const HfTensor& tensor : tensors) add(tensor);
    if (c_.tied_head && architecture_.head_required) {
      out_.push_back(out_.front());
      out_.back().tensor.name = "output.weight";
    }
    if (c_.frequencies.scaling == RopeFrequencies::Scaling::llama3)
      out_.push_back({{"rope_freqs.weight", {static_cast<std::uint64_t>(c_.rotary_dim / 2)}}, ""});
    choose_formats();
    return std::move(out_);
  }

 private:
  void add(const HfTensor& tensor) {
    const ParamName name = split_param(tensor.param);
    GgufPart part;
    part.tensor.name = str(name.layer.empty() ? "" : str("blk.", name.layer, "."), name_of(tensor, name.part),
                           ".", name.kind);
    part.tensor.shape = tensor.shape;
    if (tensor.layout == HfTensor::Layout::transposed) std::swap(part.tensor.shape[0], part.tensor.shape[1]);
    part.param = tensor.param;
    part.first_row = tensor.first_row;
    const bool is_value = tensor.first_row == (c_.heads + c_.kv_heads) * c_.head_dim;
    if (name.part == "qkv" && architecture_.permutes_qk && !is_value) part.pairs = c_.head_dim / 2;
    if (name.part.ends_with("norm") && name.kind == "weight") part.added = c_.norm_offset;
    out_.push_back(std::move(part));
  }

  std::string_view name_of(const HfTensor& tensor, std::string_view part) const {
    const bool is_whole = n_tensors_.at(tensor.param) == 1;
    if (part == "mlp_in") return is_whole || tensor.first_row > 0 ? "ffn_up" : "ffn_gate";
    if (part == "qkv") {
      const std::int64_t first_key = c_.heads * c_.head_dim;
      if (is_whole) return "attn_qkv";
      return tensor.first_row == 0 ? "attn_q" : tensor.first_row == first_key ? "attn_k" : "attn_v";
    }
    return std::find_if(std::begin(kGgufNames), std::end(kGgufNames),
                        [&](const auto& names) { return names.first == part; })
        ->second;
  }

  void choose_formats() {
    const bool has_head = std::any_of(
        out_.begin(), out_.end(), [](const GgufPart& part) { return part.tensor.name == "output.weight"; });
    const GgufMixOf of = gguf_mix_of(mix_, architecture_, c_, has_head);
    for (GgufPart& part : out_) {
      if (part.tensor.shape.size() < 2 || part.param.starts_with("positions.")) continue;
      part.wanted = gguf_matrix_format(of, part.tensor);
      part.tensor.format = gguf_fitting_format(part.wanted, part.tensor.columns());
    }
  }

  const GgufArchitecture& architecture_;
  const DecoderConfig c_;
  const GgufMix mix_;
  std::map<std::string, int> n_tensors_;  // tensors of each parameter
  std::vector<GgufPart> out_;
};

/// The row of the parameter's part that becomes row `row`: in each head ours are the first elements of all
/// pairs and then the second ones.
std::int64_t row_before(const GgufPart& part, std::int64_t row) {
  if (part.pairs == 0) return row;
  const std::int64_t size = 2 * part.pairs, in_head = row % size;
  return row - in_head + in_head / 2 + (in_head % 2) * part.pairs;
}

}  // namespace

std::int64_t GgufPart::columns() const noexcept {
  return tensor.shape.size() < 2 ? 1 : static_cast<std::int64_t>(tensor.columns());
}

std::vector<GgufPart> gguf_parts(const GgufArchitecture& architecture, const DecoderConfig& config,
                                 GgufMix mix) {
  return PartList(architecture, with_derived_sizes(config), mix).make();
}

void gather_gguf(const GgufPart& part, std::int64_t begin, std::span<const float> param,
                 std::span<float> into) {
  const std::int64_t columns = part.columns(), n_rows = std::ssize(into) / columns;
  for (std::int64_t i = 0; i < n_rows; ++i) {
    const std::int64_t row = part.first_row + row_before(part, begin + i);
    const std::span<const float> from =
        param.subspan(static_cast<std::size_t>(row * columns), static_cast<std::size_t>(columns));
    std::copy(from.begin(), from.end(), into.begin() + i * columns);
  }
  if (part.added != 0)
    for (float& value : into) value += part.added;
}

std::vector<float> llama3_factors(const RopeFrequencies& f, std::int64_t rotary_dim) {
  std::vector<float> factors;
  for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
    const double frequency = std::pow(static_cast<double>(f.theta),
                                      -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
    const double turns = static_cast<double>(f.original_positions) * frequency / (2.0 * kPi);
    const double share = (turns - static_cast<double>(f.low_freq_factor)) /
                         static_cast<double>(f.high_freq_factor - f.low_freq_factor);
    const double blend = turns > static_cast<double>(f.high_freq_factor)  ? 1.0
                         : turns < static_cast<double>(f.low_freq_factor) ? 0.0
                                                                          : share;
    factors.push_back(static_cast<float>(1.0 / ((1.0 - blend) / static_cast<double>(f.factor) + blend)));
  }
  return factors;
}

}  // namespace strata::detail
