#include "gguf/tensors.h"

#include <algorithm>
#include <charconv>
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
    {"mlp_post_norm", "post_ffw_norm"},
    {"sinks", "attn_sinks"},
    {"router", "ffn_gate_inp"},
    {"shared_gate", "ffn_gate_inp_shexp"},
    {"experts_out", "ffn_down_exps"},
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
  name.kind = dot == std::string_view::npos ? "weight" : param.substr(dot + 1);
  return name;
}

std::size_t layer_of(const ParamName& name) {
  std::size_t layer = 0;
  std::from_chars(name.layer.data(), name.layer.data() + name.layer.size(), layer);
  return layer;
}

class PartList {
 public:
  PartList(const GgufArchitecture& architecture, DecoderConfig config, GgufMix mix)
      : architecture_(architecture), c_(std::move(config)), mix_(mix) {
    c_.experts.stacked_files = c_.experts.n > 0;  // in the file they are, whatever the folder has
  }

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
    const std::string begin = name.layer.empty() ? "" : str("blk.", name.layer, ".");
    if (name.part == "experts_in") return add_gates_and_ups(tensor.param, begin, name.kind);
    GgufPart part;
    part.tensor.name = name.kind == "choice_bias" ? begin + "exp_probs_b.bias"
                                                  : str(begin, name_of(tensor, name), ".", name.kind);
    part.tensor.shape = shape_of(tensor, name.part);
    part.param = tensor.param;
    part.first_row = tensor.first_row;
    const bool is_value = tensor.first_row == (c_.heads + c_.kv_heads) * c_.head_dim;
    if (name.part == "qkv" && architecture_.permutes_qk && !is_value) part.pairs = c_.head_dim / 2;
    if (name.part.ends_with("norm") && name.kind == "weight") part.added = c_.norm_offset;
    out_.push_back(std::move(part));
  }

  /// Each expert has the rows of its gate, and then those of its up.
  void add_gates_and_ups(const std::string& param, const std::string& begin, std::string_view kind) {
    const ExpertsConfig& e = c_.experts;
    const auto n = static_cast<std::uint64_t>(e.n), ffn = static_cast<std::uint64_t>(e.ffn);
    const bool is_bias = kind == "bias";
    for (const std::int64_t half : {0, 1}) {
      GgufPart part;
      part.tensor.name = str(begin, half == 0 ? "ffn_gate_exps." : "ffn_up_exps.", kind);
      part.tensor.shape = {n, ffn};
      if (!is_bias) part.tensor.shape.push_back(static_cast<std::uint64_t>(c_.hidden));
      part.param = param;
      part.run = is_bias ? 1 : e.ffn;
      part.stride = 2 * part.run;
      part.first_row = half * part.run;
      out_.push_back(std::move(part));
    }
  }

  /// The shape [rows, columns] of a matrix, whatever it is in a folder.
  std::vector<std::uint64_t> shape_of(const HfTensor& tensor, std::string_view part) const {
    if (part == "shared_gate") return {static_cast<std::uint64_t>(c_.hidden)};
    std::vector<std::uint64_t> shape = tensor.shape;
    const bool transposed =
        tensor.layout == HfTensor::Layout::transposed || tensor.layout == HfTensor::Layout::stack_transposed;
    if (transposed) std::swap(shape[shape.size() - 2], shape.back());
    return shape;
  }

  std::string_view name_of(const HfTensor& tensor, const ParamName& name) const {
    const std::string_view part = name.part;
    const bool is_whole = n_tensors_.at(tensor.param) == 1;
    if (part == "mlp_norm") return architecture_.mlp_norm;
    if (part == "mlp_in" || part == "mlp_out") {
      const bool is_up = is_whole || tensor.first_row > 0;
      const bool is_shared = c_.experts.n > 0 && c_.experts.layers[layer_of(name)];
      if (part == "mlp_out") return is_shared ? "ffn_down_shexp" : "ffn_down";
      if (is_shared) return is_up ? "ffn_up_shexp" : "ffn_gate_shexp";
      return is_up ? "ffn_up" : "ffn_gate";
    }
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
      const std::string_view name = part.tensor.name;
      if (part.tensor.shape.size() < 2 || part.param.starts_with("positions.") ||
          !name.ends_with(".weight") || name.ends_with("ffn_gate_inp.weight"))
        continue;
      part.wanted = gguf_matrix_format(of, part.tensor);
      part.tensor.format = gguf_fitting_format(part.wanted, part.tensor.columns());
    }
  }

  const GgufArchitecture& architecture_;
  DecoderConfig c_;
  const GgufMix mix_;
  std::map<std::string, int> n_tensors_;  // tensors of each parameter
  std::vector<GgufPart> out_;
};

/// The row of the parameter, from the part's first one on, that becomes row `row`: in each head ours are the
/// first elements of all pairs and then the second ones.
std::int64_t row_before(const GgufPart& part, std::int64_t row) {
  if (part.run > 0) return row / part.run * part.stride + row % part.run;
  if (part.pairs == 0) return row;
  const std::int64_t size = 2 * part.pairs, in_head = row % size;
  return row - in_head + in_head / 2 + (in_head % 2) * part.pairs;
}

}  // namespace

std::int64_t GgufPart::rows() const noexcept {
  return static_cast<std::int64_t>(tensor.n_elems()) / columns();
}
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
