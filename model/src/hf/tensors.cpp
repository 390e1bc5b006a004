#include <strata/model/hf/tensors.h>

#include <array>
#include <utility>

#include <strata/runtime/str.h>

#include "family/family.h"

namespace strata {
namespace {

using Layout = HfTensor::Layout;

class TensorListBuilder {
 public:
  explicit TensorListBuilder(const DecoderConfig& config)
      : c_(with_derived_sizes(config)),
        names_(detail::family_of(c_).hf.names),
        linear_(names_.transposed ? Layout::transposed : Layout::rows),
        fused_qkv_(names_.qkv_by_head ? Layout::by_head : linear_) {}

  std::vector<HfTensor> make() {
    matrix("tokens", str(names_.tokens), c_.vocab, c_.hidden, Layout::rows);
    if (c_.position == DecoderConfig::Position::learned)
      matrix("positions", str(names_.positions), c_.positions + c_.position_offset, c_.hidden, Layout::rows);
    if (c_.embed_norm) norm("embed_norm", str(names_.embed_norm), c_.hidden);
    for (std::int64_t layer = 0; layer < c_.layers; ++layer)
      block(static_cast<std::size_t>(layer), str("layers.", layer, "."), str(names_.layer, layer, "."));
    norm("final_norm", str(names_.final_norm), c_.hidden);
    if (c_.scores) matrix("score", "score", 1, c_.hidden, Layout::rows);
    if (!c_.tied_head && !c_.scores) matrix("head", "lm_head", c_.vocab, c_.hidden, Layout::rows);
    return std::move(out_);
  }

 private:
  void matrix(const std::string& param, const std::string& name, std::int64_t rows, std::int64_t columns,
              Layout layout, std::int64_t first_row = 0) {
    const auto r = static_cast<std::uint64_t>(rows), c = static_cast<std::uint64_t>(columns);
    const bool transposed = layout == Layout::transposed;
    out_.push_back(
        {name + ".weight", {transposed ? c : r, transposed ? r : c}, param + ".weight", first_row, layout});
  }
  void stack(const std::string& param, const std::string& name, const std::vector<std::int64_t>& shape,
             Layout layout = Layout::rows) {
    out_.push_back({name, {shape.begin(), shape.end()}, param, 0, layout});
    out_.back().of_experts = shape.size() == 3;
  }
  void of_expert(const std::string& param, const std::string& name, std::int64_t rows, std::int64_t columns,
                 std::int64_t first_row) {
    matrix(param, name, rows, columns, Layout::rows, first_row);
    out_.back().of_experts = true;
  }
  void vector(const std::string& param, const std::string& name, std::int64_t n, Layout layout = Layout::rows,
              std::int64_t first = 0) {
    out_.push_back({name, {static_cast<std::uint64_t>(n)}, param, first, layout});
  }
  void norm(const std::string& param, const std::string& name, std::int64_t n) {
    vector(param + ".weight", name + ".weight", n);
    if (c_.norm == DecoderConfig::Norm::layer) vector(param + ".bias", name + ".bias", n);
  }
  void linear(const std::string& param, const std::string& name, std::int64_t rows, std::int64_t columns,
              bool bias, Layout layout, std::int64_t first_row = 0) {
    matrix(param, name, rows, columns, layout, first_row);
    // A bias is a vector, which cannot be transposed.
    if (bias)
      vector(param + ".bias", name + ".bias", rows, layout == Layout::transposed ? Layout::rows : layout,
             first_row);
  }

  void mlp(const std::string& param, const std::string& name, const std::array<std::string_view, 2>& in,
           std::string_view out, std::int64_t ffn) {
    const bool gated = is_gated(c_.mlp);
    if (gated && !in[1].empty()) {
      linear(param + "mlp_in", str(name, in[0]), ffn, c_.hidden, c_.mlp_bias, linear_);
      linear(param + "mlp_in", str(name, in[1]), ffn, c_.hidden, c_.mlp_bias, linear_, ffn);
    } else {
      linear(param + "mlp_in", str(name, in[0]), (gated ? 2 : 1) * ffn, c_.hidden, c_.mlp_bias, linear_);
    }
    linear(param + "mlp_out", str(name, out), c_.hidden, ffn, c_.mlp_bias, linear_);
  }
  // The matrices of experts are stacked: those of expert e begin at its row.
  void mixture(const std::string& param, const std::string& name) {
    const ExpertsConfig& e = c_.experts;
    const std::size_t first = out_.size();
    const bool is_stacked = e.stacked_files || names_.stacked_transposed || names_.experts.empty();
    const std::int64_t width = e.latent > 0 ? e.latent : c_.hidden, parts = is_gated(c_.mlp) ? 2 : 1;
    matrix(param + "router", str(name, is_stacked ? names_.stacked_router : names_.router), e.n, c_.hidden,
           Layout::rows);
    if (names_.stacked_transposed) {
      stack(param + "experts_in.weight", str(name, names_.stacked_in), {e.n, c_.hidden, 2 * e.ffn},
            Layout::stack_in_turn);
      stack(param + "experts_out.weight", str(name, names_.stacked_out), {e.n, e.ffn, c_.hidden},
            Layout::stack_transposed);
    } else if (is_stacked) {
      stack(param + "experts_in.weight", str(name, names_.stacked_in), {e.n, parts * e.ffn, width});
      stack(param + "experts_out.weight", str(name, names_.stacked_out), {e.n, width, e.ffn});
    }
    if (e.choice_bias) {
      vector(param + "router.choice_bias", str(name, names_.choice_bias), e.n);
      out_.back().is_f32 = true;
    }
    if (e.biases) {
      vector(param + "router.bias", str(name, names_.stacked_router, ".bias"), e.n);
      stack(param + "experts_in.bias", str(name, names_.stacked_in, "_bias"), {e.n, 2 * e.ffn},
            Layout::stack_in_turn);
      stack(param + "experts_out.bias", str(name, names_.stacked_out, "_bias"), {e.n, c_.hidden});
    }
    for (std::int64_t i = 0; i < e.n && !is_stacked; ++i) {
      const std::string expert = str(name, names_.experts, i, ".");
      for (std::int64_t part = 0; part < parts; ++part)
        of_expert(param + "experts_in", str(expert, names_.expert_in[static_cast<std::size_t>(part)]), e.ffn,
                  width, (parts * i + part) * e.ffn);
      of_expert(param + "experts_out", str(expert, names_.expert_out), width, e.ffn, i * width);
    }
    if (e.beside_dense) {
      vector(param + "router_norm.weight", str(name, names_.router_norm), c_.hidden);
      vector(param + "expert_factors", str(name, names_.expert_factors), e.n);
      norm(param + "dense_post_norm", str(name, names_.dense_post_norm), c_.hidden);
      norm(param + "experts_norm", str(name, names_.experts_norm), c_.hidden);
      norm(param + "experts_post_norm", str(name, names_.experts_post_norm), c_.hidden);
    }
    if (e.shared_gate)
      matrix(param + "shared_gate", str(name, names_.shared_gate), 1, c_.hidden, Layout::rows);
    for (std::size_t i = first; i < out_.size(); ++i) out_[i].is_linear = false;
    if (e.latent > 0) {
      linear(param + "latent_in", str(name, names_.latent_in), e.latent, c_.hidden, c_.mlp_bias, linear_);
      linear(param + "latent_out", str(name, names_.latent_out), c_.hidden, e.latent, c_.mlp_bias, linear_);
    }
    if (e.shared_ffn > 0) mlp(param, name, names_.shared_in, names_.shared_out, e.shared_ffn);
    if (e.beside_dense) mlp(param, name, names_.mlp_in, names_.mlp_out, c_.ffn);
  }

  void attention(std::size_t layer, const std::string& param, const std::string& name) {
    const LayerHeads heads = layer_heads(c_, layer);
    const std::int64_t inner = heads.q_width(), kv = heads.kv_width();
    const std::int64_t q = c_.output_gate ? 2 * inner : inner;  // the gate of each head is behind its queries
    const std::string qkv = param + "qkv";
    if (names_.qkv[1].empty()) {
      linear(qkv, str(name, names_.qkv[0]), q + 2 * kv, c_.hidden, c_.qkv_bias, fused_qkv_);
    } else {
      linear(qkv, str(name, names_.qkv[0]), q, c_.hidden, c_.qkv_bias, linear_);
      linear(qkv, str(name, names_.qkv[1]), kv, c_.hidden, c_.qkv_bias, linear_, q);
      if (!heads.keys_as_values)
        linear(qkv, str(name, names_.qkv[2]), kv, c_.hidden, c_.qkv_bias, linear_, q + kv);
    }
    if (c_.qk_norm != DecoderConfig::QkNorm::none) {
      const bool whole = c_.qk_norm == DecoderConfig::QkNorm::whole;
      vector(param + "q_norm.weight", str(name, names_.q_norm, ".weight"), whole ? inner : heads.head_dim);
      vector(param + "k_norm.weight", str(name, names_.k_norm, ".weight"), whole ? kv : heads.head_dim);
    }
    if (c_.sinks) vector(param + "sinks", str(name, names_.sinks), c_.heads);
    linear(param + "attn_out", str(name, names_.attn_out), c_.hidden, inner, c_.out_bias, linear_);
  }
  void latent_attention(const std::string& param, const std::string& name) {
    const LatentConfig& l = c_.latent;
    const std::int64_t q = c_.heads * (l.plain + l.rotated);
    if (l.q_rank > 0) {
      linear(param + "q_down", str(name, names_.q_down), l.q_rank, c_.hidden, c_.qkv_bias, linear_);
      vector(param + "q_down_norm.weight", str(name, names_.q_down_norm, ".weight"), l.q_rank);
    }
    linear(param + "q_up", str(name, l.q_rank > 0 ? names_.q_up : names_.q), q,
           l.q_rank > 0 ? l.q_rank : c_.hidden, false, linear_);
    linear(param + "kv_down", str(name, names_.kv_down), l.kv_rank + l.rotated, c_.hidden, c_.qkv_bias,
           linear_);
    vector(param + "kv_down_norm.weight", str(name, names_.kv_down_norm, ".weight"), l.kv_rank);
    linear(param + "kv_up", str(name, names_.kv_up), c_.heads * (l.plain + l.value), l.kv_rank, false,
           linear_);
    linear(param + "attn_out", str(name, names_.attn_out), c_.hidden, c_.heads * l.value, c_.out_bias,
           linear_);
  }
  void convolution(const std::string& param, const std::string& name, std::int64_t channels,
                   std::int64_t taps) {
    out_.push_back({name + ".weight",
                    {static_cast<std::uint64_t>(channels), 1, static_cast<std::uint64_t>(taps)},
                    param + ".weight",
                    0,
                    Layout::rows});
    out_.back().is_linear = false;
  }
  void mamba(const std::string& param, const std::string& name) {
    const MambaConfig& m = c_.mamba;
    linear(param + "mamba_in", str(name, names_.mamba_in), m.in_width(), c_.hidden, m.in_bias, linear_);
    convolution(param + "mamba_conv", str(name, names_.mamba_conv), m.channels(), m.taps);
    if (m.conv_bias) vector(param + "mamba_conv.bias", str(name, names_.mamba_conv, ".bias"), m.channels());
    vector(param + "mamba_decay", str(name, names_.mamba_decay), m.heads);
    vector(param + "mamba_step", str(name, names_.mamba_step), m.heads);
    vector(param + "mamba_skip", str(name, names_.mamba_skip), m.heads);
    if (m.norm != MambaConfig::Norm::none)
      vector(param + "mamba_norm.weight", str(name, names_.mamba_norm, ".weight"), m.inner());
    linear(param + "mamba_out", str(name, names_.mamba_out), c_.hidden, m.inner(), m.out_bias, linear_);
  }
  void short_conv(const std::string& param, const std::string& name) {
    linear(param + "conv_in", str(name, names_.conv_in), 3 * c_.hidden, c_.hidden, c_.conv_bias, linear_);
    convolution(param + "conv", str(name, names_.conv), c_.hidden, c_.conv_taps);
    if (c_.conv_bias) vector(param + "conv.bias", str(name, names_.conv, ".bias"), c_.hidden);
    linear(param + "conv_out", str(name, names_.conv_out), c_.hidden, c_.hidden, c_.conv_bias, linear_);
  }
  void delta(const std::string& param, const std::string& name) {
    const DeltaConfig& d = c_.delta;
    if (names_.delta_by_head) {
      linear(param + "delta_in", str(name, names_.delta_in[0]), d.channels() + d.values(), c_.hidden, false,
             Layout::delta_by_head);
      linear(param + "delta_gates", str(name, names_.delta_gates[0]), 2 * d.value_heads, c_.hidden, false,
             Layout::delta_gates_by_head);
    } else {
      linear(param + "delta_in", str(name, names_.delta_in[0]), d.channels(), c_.hidden, false, linear_);
      linear(param + "delta_in", str(name, names_.delta_in[1]), d.values(), c_.hidden, false, linear_,
             d.channels());
      linear(param + "delta_gates", str(name, names_.delta_gates[0]), d.value_heads, c_.hidden, false,
             linear_);
      linear(param + "delta_gates", str(name, names_.delta_gates[1]), d.value_heads, c_.hidden, false,
             linear_, d.value_heads);
    }
    convolution(param + "delta_conv", str(name, names_.delta_conv), d.channels(), d.taps);
    vector(param + "delta_decay", str(name, names_.delta_decay), d.value_heads);
    vector(param + "delta_step", str(name, names_.delta_step), d.value_heads);
    vector(param + "delta_norm.weight", str(name, names_.delta_norm, ".weight"), d.value_dim);
    linear(param + "delta_out", str(name, names_.delta_out), c_.hidden, d.values(), false, linear_);
  }

  void block(std::size_t layer, const std::string& param, const std::string& name) {
    const bool mixes = c_.mixers[layer] != Mixer::none;
    if (c_.pre_norms && mixes) norm(param + "attn_norm", str(name, names_.attn_norm), c_.hidden);
    switch (c_.mixers[layer]) {
      case Mixer::attention:
        attention(layer, param, name);
        break;
      case Mixer::latent:
        latent_attention(param, name);
        break;
      case Mixer::delta:
        delta(param, name);
        break;
      case Mixer::short_conv:
        short_conv(param, name);
        break;
      case Mixer::mamba:
        mamba(param, name);
        break;
      case Mixer::both:
        mamba(param, name);
        attention(layer, param, name);
        break;
      case Mixer::none:
        break;
    }
    if (c_.post_norms && mixes) norm(param + "attn_post_norm", str(name, names_.attn_post_norm), c_.hidden);
    if (!has_mlp(c_, layer)) return;
    if (c_.pre_norms) norm(param + "mlp_norm", str(name, names_.mlp_norm), c_.hidden);
    if (c_.experts.n > 0 && c_.experts.layers[layer])
      mixture(param, name);
    else
      mlp(param, name, names_.mlp_in, names_.mlp_out, c_.ffn);
    if (c_.post_norms) norm(param + "mlp_post_norm", str(name, names_.mlp_post_norm), c_.hidden);
    if (c_.layer_factor) vector(param + "layer_factor", str(name, names_.layer_factor), 1);
  }

  const DecoderConfig c_;
  const detail::HfNames& names_;
  const Layout linear_, fused_qkv_;
  std::vector<HfTensor> out_;
};

// Maps element `e` of a tensor to its index in the parameter.
class ElementMap {
 public:
  ElementMap(const HfTensor& tensor, const DecoderConfig& config)
      : layout_(tensor.layout),
        columns_(tensor.shape.size() > 1 ? static_cast<std::int64_t>(tensor.shape[1]) : 1),
        rows_(static_cast<std::int64_t>(tensor.shape[0])),
        first_(tensor.first_row * (layout_ == Layout::transposed ? rows_ : columns_)) {
    if (is_by_head(layout_)) set_parts(with_derived_sizes(config));
    in_ = tensor.shape.size() > 2 ? columns_ : 1;
    out_ = static_cast<std::int64_t>(tensor.shape.back());
  }
  std::int64_t operator()(std::int64_t e) const {
    if (layout_ == Layout::rows) return first_ + e;
    if (layout_ >= Layout::stack_transposed) {
      const std::int64_t expert = e / (in_ * out_), of_in = e / out_ % in_, at = e % out_;
      const std::int64_t row = layout_ == Layout::stack_in_turn ? at % 2 * (out_ / 2) + at / 2 : at;
      return (expert * out_ + row) * in_ + of_in;
    }
    const std::int64_t row = e / columns_, column = e % columns_;
    if (layout_ == Layout::transposed) return first_ + column * rows_ + row;
    const std::int64_t head = row / head_rows_;
    std::int64_t i = row % head_rows_, before = 0;  // `before` rows of each head are of the parts before
    std::size_t part = 0;
    for (; i >= parts_[part]; before += parts_[part++]) i -= parts_[part];
    return first_ + (before * (rows_ / head_rows_) + head * parts_[part] + i) * columns_ + column;
  }

 private:
  // The rows of a head in each of the parts.
  void set_parts(const DecoderConfig& c) {
    const DeltaConfig& d = c.delta;
    const std::int64_t group = d.key_heads > 0 ? d.value_heads / d.key_heads : 0;
    parts_ = layout_ == Layout::by_head ? std::array{c.head_dim, c.head_dim, c.head_dim, std::int64_t{0}}
             : layout_ == Layout::delta_by_head
                 ? std::array{d.key_dim, d.key_dim, group * d.value_dim, group * d.value_dim}
                 : std::array{group, group, std::int64_t{0}, std::int64_t{0}};
    head_rows_ = parts_[0] + parts_[1] + parts_[2] + parts_[3];
  }

  Layout layout_;
  std::int64_t columns_, rows_, first_;
  std::array<std::int64_t, 4> parts_ = {};
  std::int64_t head_rows_ = 1;
  std::int64_t in_ = 1, out_ = 1;  // the extents of an expert in a stack
};

}  // namespace

std::int64_t HfTensor::n_elems() const noexcept {
  std::uint64_t n = 1;
  for (const std::uint64_t extent : shape) n *= extent;
  return static_cast<std::int64_t>(n);
}

std::vector<HfTensor> hf_tensors(const DecoderConfig& config) { return TensorListBuilder(config).make(); }

std::string_view hf_head_name() noexcept { return "lm_head.weight"; }

bool is_hf_buffer(std::string_view name) noexcept {
  for (const std::string_view end : {".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq"})
    if (name.ends_with(end)) return true;
  return false;
}

void scatter_hf(const HfTensor& tensor, const DecoderConfig& config, std::int64_t begin,
                std::span<const float> from, std::span<float> param) {
  const ElementMap element_map(tensor, config);
  for (std::size_t i = 0; i < from.size(); ++i)
    param[static_cast<std::size_t>(element_map(begin + static_cast<std::int64_t>(i)))] = from[i];
}

void gather_hf(const HfTensor& tensor, const DecoderConfig& config, std::int64_t begin,
               std::span<const float> param, std::span<float> into) {
  const ElementMap element_map(tensor, config);
  for (std::size_t i = 0; i < into.size(); ++i)
    into[i] = param[static_cast<std::size_t>(element_map(begin + static_cast<std::int64_t>(i)))];
}

}  // namespace strata
