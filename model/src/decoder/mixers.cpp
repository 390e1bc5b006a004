#include <strata/kernels/mixers/divided_columns.h>
#include <strata/kernels/mixers/latent_heads.h>
#include <strata/kernels/recurrent/delta_rule.h>
#include <strata/kernels/recurrent/state_scan.h>
#include <strata/kernels/values/column_scales.h>

#include "decoder/recorder.h"

// What mixes the tokens of a layer: attention of several kinds, and layers with a state.

namespace strata::detail {

Value Recorder::normed_heads(const std::string& name, const LayerHeads& heads, Value qkv) {
  if (c_.qk_norm == DecoderConfig::QkNorm::none) return qkv;
  const bool whole = c_.qk_norm == DecoderConfig::QkNorm::whole;
  const Value q = scale(name + ".q_norm", whole ? heads.q_width() : heads.head_dim);
  const Value k = scale(name + ".k_norm", whole ? heads.kv_width() : heads.head_dim);
  return b_.qk_norm(qkv, q, k, of(heads), c_.norm_eps, c_.norm_offset, c_.value_norm);
}

Value Recorder::attention(const std::string& name, std::size_t layer, Value x) {
  const LayerHeads heads = layer_heads(c_, layer);
  const std::int64_t inner = heads.q_width();
  const std::int64_t width = inner + (heads.keys_as_values ? 1 : 2) * heads.kv_width();
  Value qkv =
      linear(name + ".qkv", x, c_.output_gate ? width + inner : width, c_.hidden, c_.qkv_bias, kInitStd);
  qkv =
      scaled_parts(qkv, {{inner, 1.0f}, {heads.kv_width(), c_.hybrid_factors.key}, {heads.kv_width(), 1.0f}});
  Value gate;  // the columns of each head are behind those of its queries
  if (c_.output_gate) {
    const ColumnParts parts = b_.divide_columns(qkv, {c_.heads, c_.head_dim, c_.head_dim, width - inner});
    qkv = parts.first;
    gate = parts.second;
  }
  if (heads.keys_as_values) qkv = keys_as_values(qkv, heads);
  if (!c_.qk_norm_after_rope) qkv = normed_heads(name, heads, qkv);
  if (c_.position == DecoderConfig::Position::rope && c_.rope_layers[layer])
    qkv = b_.rope(qkv, positions_, angles_[c_.sliding_frequencies.has_value() && c_.sliding[layer]],
                  of(heads), c_.rotary_interleaved);
  if (c_.qk_norm_after_rope) qkv = normed_heads(name, heads, qkv);
  Value mixed = attend(name, qkv, heads, scores(layer));
  if (c_.output_gate) mixed = b_.sigmoid_gate(mixed, gate);
  return linear(name + ".attn_out", mixed, c_.hidden, inner, c_.out_bias, residual_std_);
}

// q | k -> q | k | k.
Value Recorder::keys_as_values(Value qk, const LayerHeads& heads) {
  const std::int64_t q = heads.q_width(), kv = heads.kv_width();
  const ColumnParts parts = b_.divide_columns(qk, {.groups = 1, .first = q, .second = kv});
  const Value both = b_.unite_columns({parts.second, parts.second}, {.groups = 1, .first = kv, .second = kv});
  return b_.unite_columns({parts.first, both}, {.groups = 1, .first = q, .second = 2 * kv});
}

Value Recorder::latent_norm(const std::string& name, Value x, std::int64_t n) {
  constexpr float kEps = 1e-6f;
  return b_.rmsnorm(x, scale(name, n), kEps, c_.norm_offset);
}

Value Recorder::latent_attention(const std::string& name, std::size_t layer, Value x) {
  const LatentConfig& l = c_.latent;
  const kernels::LatentHeads heads = {static_cast<std::int32_t>(c_.heads), static_cast<std::int32_t>(l.plain),
                                      static_cast<std::int32_t>(l.rotated),
                                      static_cast<std::int32_t>(l.value)};
  Value q = x;
  if (l.q_rank > 0)
    q = latent_norm(name + ".q_down_norm",
                    linear(name + ".q_down", x, l.q_rank, c_.hidden, c_.qkv_bias, kInitStd), l.q_rank);
  q = linear(name + ".q_up", q, heads.q_width(), l.q_rank > 0 ? l.q_rank : c_.hidden, false, kInitStd);
  const ColumnParts down =
      b_.divide_columns(linear(name + ".kv_down", x, l.kv_rank + l.rotated, c_.hidden, c_.qkv_bias, kInitStd),
                        {.groups = 1, .first = l.kv_rank, .second = l.rotated});
  const Value latent = latent_norm(name + ".kv_down_norm", down.first, l.kv_rank),
              up = weight(name + ".kv_up.weight", {heads.kv_width(), l.kv_rank}, kInitStd);
  const bool keeps_latents = cache_ && cache_->latent;  // then it makes all keys and values of them
  const Value kv = keeps_latents ? Value{} : b_.linear(latent, up);
  const Value qkv = b_.rope(b_.latent_qkv(q, kv, down.second, heads), positions_, angles_[0], heads_,
                            c_.rotary_interleaved);
  const Value mixed = b_.trim_heads(keeps_latents ? attend_to_latents(name, layer, qkv, latent, up, heads)
                                                  : attend(name, qkv, layer_heads(c_, layer), scores(layer)),
                                    heads);
  return linear(name + ".attn_out", mixed, c_.hidden, heads.out_width(), c_.out_bias, residual_std_);
}

Value Recorder::attend_to_latents(const std::string& name, std::size_t layer, Value qkv, Value latent,
                                  Value up, const kernels::LatentHeads& heads) {
  const Value cache =
      b_.state(name + ".latents", {cache_->sequences, cache_->context, c_.latent.kv_rank + heads.rotated});
  const Value all = b_.cached_latents(latent, qkv, positions_, slots_, cache, heads);
  const KeysValues of = b_.latent_keys_values(b_.linear(all, up), positions_, slots_, cache, heads);
  return b_.stored_attention(qkv, positions_, slots_, of, heads_, scores(layer), sinks(name));
}

Value Recorder::convolution(const std::string& name, Value x, std::int64_t channels, std::int64_t taps,
                            bool has_bias, bool silu) {
  const Value w = weight(name + ".weight", {channels, taps}, kInitStd);
  const Value shift = has_bias ? bias(name, {channels}) : Value{};
  if (!cache_) return b_.causal_conv(x, w, shift, static_cast<int>(c_.seq), silu, doc_start_);
  const Value kept = b_.state(name + ".rows", {cache_->sequences, taps - 1, channels});
  return b_.cached_causal_conv(x, w, shift, positions_, slots_, kept, silu);
}

Value Recorder::delta_net(const std::string& name, Value x) {
  const DeltaConfig& d = c_.delta;
  const ColumnParts parts =
      b_.divide_columns(linear(name + ".delta_in", x, d.channels() + d.values(), c_.hidden, false, kInitStd),
                        {.groups = 1, .first = d.channels(), .second = d.values()});
  const Value ba = linear(name + ".delta_gates", x, 2 * d.value_heads, c_.hidden, false, kInitStd);
  const Value qkv = convolution(name + ".delta_conv", parts.first, d.channels(), d.taps, false, true);
  // Rates of decay from 0.01 to 16, as those of transformers' new models are.
  const auto rate = [&](const char* what, float mean, float std) {
    return b_.param(name + what, {d.value_heads}, {.init = {mean, std}, .decay = false, .is_f32 = true});
  };
  const Value decay = rate(".delta_decay", 1.7f, 0.8f), step = rate(".delta_step", 1, 0);
  const DeltaGates gates = b_.delta_gates(ba, decay, step);
  const kernels::DeltaHeads heads = delta_heads(d, cache_ ? 0 : c_.seq);
  const Value mixed = mixed_by_state(name, qkv, gates, heads);
  const Value norm = b_.param(name + ".delta_norm.weight", {d.value_dim}, {.init = {1, 0}, .decay = false});
  return linear(name + ".delta_out", b_.gated_rmsnorm(mixed, parts.second, norm, c_.norm_eps), c_.hidden,
                d.values(), false, residual_std_);
}

Value Recorder::mixed_by_state(const std::string& name, Value qkv, const DeltaGates& gates,
                               const kernels::DeltaHeads& heads) {
  if (!cache_) return b_.delta_rule(qkv, gates, heads, doc_start_);
  const Shape shape = {cache_->sequences, heads.key_heads, kernels::delta_state_elems(heads)};
  return b_.cached_delta_rule(qkv, gates, positions_, slots_,
                              b_.state(name + ".delta_state", shape, DType::f32), heads);
}

Value Recorder::short_conv(const std::string& name, Value x) {
  const std::int64_t h = c_.hidden;
  const ColumnParts before = b_.divide_columns(linear(name + ".conv_in", x, 3 * h, h, c_.conv_bias, kInitStd),
                                               {.groups = 1, .first = h, .second = 2 * h});
  const ColumnParts behind = b_.divide_columns(before.second, {.groups = 1, .first = h, .second = h});
  const Value mixed = convolution(name + ".conv", b_.multiply(before.first, behind.second), h, c_.conv_taps,
                                  c_.conv_bias, false);
  return linear(name + ".conv_out", b_.multiply(behind.first, mixed), h, h, c_.conv_bias, residual_std_);
}

Value Recorder::scaled_parts(Value x, std::initializer_list<std::pair<std::int64_t, float>> parts) {
  if (std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.second == 1; })) return x;
  kernels::ColumnScales scales;
  for (const auto& [columns, factor] : parts) {
    const auto at = static_cast<std::size_t>(scales.parts++);
    scales.widths[at] = static_cast<std::int32_t>(columns);
    scales.factors[at] = factor;
  }
  return b_.scale_parts(x, scales);
}

Value Recorder::mamba(const std::string& name, Value x) {
  const MambaConfig& m = c_.mamba;
  const auto& f = c_.hybrid_factors.mamba;
  Value in = linear(name + ".mamba_in", x, m.in_width(), c_.hidden, m.in_bias, kInitStd);
  in = scaled_parts(in, {{m.inner(), f[0]},
                         {m.inner(), f[1]},
                         {m.group_states(), f[2]},
                         {m.group_states(), f[3]},
                         {m.heads, f[4]}});
  const ColumnParts z =
      b_.divide_columns(in, {.groups = 1, .first = m.inner(), .second = m.channels() + m.heads});
  const ColumnParts parts =
      b_.divide_columns(z.second, {.groups = 1, .first = m.channels(), .second = m.heads});
  const Value xbc = convolution(name + ".mamba_conv", parts.first, m.channels(), m.taps, m.conv_bias, true);
  const auto of_heads = [&](const char* what, float mean, float std) {
    return b_.param(name + what, {m.heads}, {.init = {mean, std}, .decay = false, .is_f32 = true});
  };
  // As those of the authors' new models are: steps from 0.001 to 0.1, and rates of decay from 1 on.
  const Value decay = of_heads(".mamba_decay", 2, 0.8f), step = of_heads(".mamba_step", -4.6f, 1.2f);
  const ScanGates gates = b_.scan_gates(parts.second, decay, step, {.low = m.step_low, .high = m.step_high});
  const Value mixed = scanned(name, xbc, gates, of_heads(".mamba_skip", 1, 0));
  const Value y = gated(name, mixed, z.first);
  return linear(name + ".mamba_out", y, c_.hidden, m.inner(), m.out_bias, residual_std_);
}

Value Recorder::gated(const std::string& name, Value mixed, Value gate) {
  const MambaConfig& m = c_.mamba;
  if (m.norm == MambaConfig::Norm::none) return b_.silu_gate(mixed, gate);
  const Value norm = b_.param(name + ".mamba_norm.weight", {m.inner()}, {.init = {1, 0}, .decay = false});
  return b_.gated_rmsnorm(mixed, gate, norm, c_.norm_eps, static_cast<int>(m.inner() / m.groups),
                          m.norm == MambaConfig::Norm::gate_first);
}

Value Recorder::scanned(const std::string& name, Value xbc, const ScanGates& gates, Value skip) {
  const kernels::ScanHeads heads = scan_heads(c_.mamba, cache_ ? 0 : c_.seq);
  if (!cache_) return b_.state_scan(xbc, gates, skip, heads, doc_start_);
  const Shape shape = {cache_->sequences, heads.blocks(), kernels::scan_state_elems(heads)};
  return b_.cached_state_scan(xbc, gates, skip, positions_, slots_,
                              b_.state(name + ".mamba_state", shape, DType::f32), heads);
}

// A window of at least `seq` tokens is no window.
ScoreOptions Recorder::scores(std::size_t layer) const {
  const bool slides = c_.sliding[layer] && c_.window < c_.seq;
  return {.alibi = c_.position == DecoderConfig::Position::alibi,
          .window = slides ? static_cast<int>(c_.window) : 0,
          .softcap = c_.score_softcap,
          .scale = score_scale(c_)};
}

Value Recorder::sinks(const std::string& name) {
  return c_.sinks ? b_.param(name + ".sinks", {c_.heads}, {.init = {0, kInitStd}, .decay = false}) : Value{};
}

Value Recorder::attend(const std::string& name, Value qkv, const LayerHeads& heads,
                       const ScoreOptions& scores) {
  const Value of_sinks = sinks(name);
  if (!cache_) return b_.attention(qkv, of(heads), static_cast<int>(c_.seq), scores, doc_start_, of_sinks);
  const Shape shape = {cache_->sequences, heads.kv_heads, cache_->context, heads.head_dim};
  const Value keys = b_.state(name + ".keys", shape), values = b_.state(name + ".values", shape);
  return b_.cached_attention(qkv, positions_, slots_, keys, values, of(heads), scores, of_sinks);
}

Value Recorder::mixer(const std::string& name, std::size_t layer, Value x) {
  const HybridFactors& f = c_.hybrid_factors;
  switch (c_.mixers[layer]) {
    case Mixer::attention:
      return attention(name, layer, x);
    case Mixer::latent:
      return latent_attention(name, layer, x);
    case Mixer::delta:
      return delta_net(name, x);
    case Mixer::short_conv:
      return short_conv(name, x);
    case Mixer::mamba:
      return mamba(name, x);
    case Mixer::both:
      return b_.add(scaled(mamba(name, scaled(x, f.mamba_in)), f.mamba_out),
                    scaled(attention(name, layer, scaled(x, f.attn_in)), f.attn_out));
    case Mixer::none:
      break;
  }
  return {};
}

}  // namespace strata::detail
