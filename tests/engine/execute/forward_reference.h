#pragma once

#include <cmath>
#include <map>
#include <string>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/program.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/rng.h>

#include "engine/execute/reference/mixer_reference.h"
#include "support/reference/mixture.h"
#include "support/reference_ops.h"

namespace strata::test {

/// Runs a program's forward in f64 with naive ops and returns its output "loss". Parameters are given by
/// name. The norms of DoRA are those of the first run, as they are constants in backward.
class ForwardReference {
 public:
  using Vec = reference::Vec;
  using Ints = reference::Ints;
  ForwardReference(const Program& program, Ints tokens, Ints targets, Ints doc_start = {}, Ints keys = {})
      : program_(program),
        tokens_(std::move(tokens)),
        targets_(std::move(targets)),
        doc_start_(std::move(doc_start)),
        keys_(std::move(keys)) {}

  double loss(const std::map<std::string, Vec>& params) const {
    std::vector<Vec> values(program_.values.size());
    for (const ParamInfo& param : program_.params)
      values[static_cast<std::size_t>(param.value)] = params.at(param.name);
    for (const Instr& instr : program_.code)
      if (!instr.backward) run(instr, values);
    return values[static_cast<std::size_t>(program_.find("loss"))][0];
  }

 private:
  std::size_t dim(ValueId id, int i) const {
    return static_cast<std::size_t>(program_.value(id).shape.dim(i));
  }

  // Number of query and key heads; with `key_parts` = 2, value heads are included.
  template <class A>
  static std::size_t n_heads(const A& attrs, int key_parts) {
    return static_cast<std::size_t>(attrs.heads + key_parts * attrs.kv_heads);
  }
  const Instr& maker(ValueId id) const {
    for (const Instr& instr : program_.code)
      if (instr.out[0] == id) return instr;
    STRATA_ASSERT(false, "nothing makes value ", id);
  }
  Ints ids(ValueId id) const { return program_.value(id).kind == ValueKind::input ? tokens_ : positions(id); }
  Ints positions(ValueId id) const {
    const auto& attrs = maker(id).attrs.as<PositionsAttrs>();
    Ints out(static_cast<std::size_t>(attrs.rows));
    const auto seq = static_cast<std::size_t>(attrs.seq);
    for (std::size_t t = 0; t < out.size(); ++t)
      out[t] = attrs.first + static_cast<std::int32_t>(t % seq) - (doc_start_.empty() ? 0 : doc_start_[t]);
    return out;
  }
  Vec speeds(ValueId id) const {
    const auto& attrs = maker(id).attrs.as<RopeTableAttrs>();
    Vec out;
    for (int i = 0; i < attrs.rotary_dim / 2; ++i)
      out.push_back(i < attrs.rotary_dim / 2 - attrs.frequencies.still
                        ? std::pow(static_cast<double>(attrs.frequencies.theta), -2.0 * i / attrs.rotary_dim)
                        : 0);
    return out;
  }

  Vec dropped(const Instr& instr, Vec x) const {
    const auto& attrs = instr.attrs.as<DropoutAttrs>();
    const std::size_t n = dim(instr.in[0], 1);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto key = [&](std::size_t word) {
        return static_cast<std::uint32_t>(keys_[2 * (i / n) + word]);
      };
      const std::size_t column = i % n;
      const std::uint32_t bits =
          philox({static_cast<std::uint32_t>(column / 4), 0, attrs.stream, 0}, {key(0), key(1)})[column % 4];
      const double p = static_cast<double>(attrs.p);
      x[i] = bits < p * 4294967296.0 ? 0 : x[i] / (1 - p);
    }
    return x;
  }
  static Vec plus_offset(const Vec& weight, float offset) {
    return reference::plus(weight, static_cast<double>(offset));
  }
  static Vec rmsnorm(const Instr& instr, const Vec& x, const Vec& weight) {
    const auto& attrs = instr.attrs.as<RmsnormAttrs>();
    return reference::rmsnorm_forward(x, plus_offset(weight, attrs.weight_offset),
                                      static_cast<double>(attrs.eps));
  }
  static Vec layernorm(const Instr& instr, const Vec& x, const Vec& weight, const Vec& bias) {
    return reference::layernorm_forward(x, weight, bias,
                                        static_cast<double>(instr.attrs.as<LayernormAttrs>().eps))
        .y;
  }
  Vec qk_norm(const Instr& instr, const Vec& qkv, const Vec& q_weight, const Vec& k_weight) const {
    const auto& attrs = instr.attrs.as<QkNormAttrs>();
    const bool of_heads = q_weight.size() * n_heads(attrs, 2) == dim(instr.in[0], 1);
    return reference::qk_norm_forward(qkv, plus_offset(q_weight, attrs.weight_offset),
                                      plus_offset(k_weight, attrs.weight_offset),
                                      of_heads ? static_cast<std::size_t>(attrs.heads) : 1,
                                      of_heads ? static_cast<std::size_t>(attrs.kv_heads) : 1,
                                      static_cast<double>(attrs.eps), attrs.values);
  }
  Vec attention(const Instr& instr, const Vec& qkv, const Vec& sinks) const {
    const auto& attrs = instr.attrs.as<AttentionAttrs>();
    const auto seq = static_cast<std::size_t>(attrs.seq);
    reference::AttentionShape shape{.batch = dim(instr.in[0], 0) / seq,
                                    .seq = seq,
                                    .heads = static_cast<std::size_t>(attrs.heads),
                                    .head_dim = dim(instr.in[0], 1) / n_heads(attrs, 2),
                                    .kv_heads = static_cast<std::size_t>(attrs.kv_heads),
                                    .alibi = attrs.alibi,
                                    .window = static_cast<std::size_t>(attrs.window),
                                    .softcap = static_cast<double>(attrs.softcap),
                                    .scale = static_cast<double>(attrs.scale),
                                    .sinks = sinks};
    if (instr.in[1] != kNoValue) shape.doc_start = doc_start_;
    return reference::attention_forward(qkv, shape).out;
  }
  Vec rope(const Instr& instr, const Vec& qkv) const {
    const auto& attrs = instr.attrs.as<RopeAttrs>();
    return reference::rope_forward(qkv, positions(instr.in[1]), speeds(instr.in[2]), n_heads(attrs, 1),
                                   dim(instr.in[0], 1) / n_heads(attrs, 2), attrs.interleaved);
  }
  /// Calls f(row of all parts, row of the matrix).
  template <class F>
  static void for_each_row(const LoraAttrs& parts, const F& f) {
    std::size_t row = 0;
    for (const LoraPart& part : parts.all())
      for (std::int64_t i = 0; i < part.rows; ++i) f(row++, static_cast<std::size_t>(part.first_row + i));
  }
  Vec adapted_norms(const Instr& instr, const Vec& w, const Vec& a, const Vec& b) const {
    const auto& attrs = instr.attrs.as<DoraNormAttrs>();
    const std::size_t columns = dim(instr.in[1], 1);
    std::size_t of_a = 0, of_b = 0;
    Vec norms;
    for (const LoraPart& part : attrs.parts.all()) {
      const auto rank = static_cast<std::size_t>(part.rank);
      for (std::size_t i = 0; i < static_cast<std::size_t>(part.rows); ++i, of_b += rank) {
        double squares = 0;
        for (std::size_t k = 0; k < columns; ++k) {
          double value = w[(static_cast<std::size_t>(part.first_row) + i) * columns + k];
          for (std::size_t j = 0; j < rank; ++j)
            value += static_cast<double>(attrs.scale) * b[of_b + j] * a[(of_a + j) * columns + k];
          squares += value * value;
        }
        norms.push_back(std::sqrt(squares));
      }
      of_a += rank;
    }
    return norms;
  }
  /// Rows [first, first + n) of each sequence of x.
  Vec rows_of(const Instr& instr, const Vec& x, std::size_t rows, std::size_t first, std::size_t n) const {
    const std::size_t h = dim(instr.in[0], 1);
    Vec out;
    for (std::size_t t = 0; t < x.size() / h; ++t)
      if (t % rows >= first && t % rows < first + n)
        out.insert(out.end(), x.begin() + static_cast<std::ptrdiff_t>(t * h),
                   x.begin() + static_cast<std::ptrdiff_t>((t + 1) * h));
    return out;
  }
  /// The virtual rows, filled up with zeros at their left, before each sequence of x.
  Vec splice_rows(const Instr& instr, const Vec& x, const Vec& added) const {
    const auto& attrs = instr.attrs.as<VirtualRowsAttrs>();
    const std::size_t h = dim(instr.in[0], 1), columns = dim(instr.in[1], 1),
                      of_sequence = static_cast<std::size_t>(attrs.seq) * h;
    Vec out;
    for (std::size_t at = 0; at < x.size(); at += of_sequence) {
      for (std::size_t row = 0; row < static_cast<std::size_t>(attrs.n); ++row) {
        out.insert(out.end(), h - columns, 0.0);
        out.insert(out.end(), added.begin() + static_cast<std::ptrdiff_t>(row * columns),
                   added.begin() + static_cast<std::ptrdiff_t>((row + 1) * columns));
      }
      out.insert(out.end(), x.begin() + static_cast<std::ptrdiff_t>(at),
                 x.begin() + static_cast<std::ptrdiff_t>(at + of_sequence));
    }
    return out;
  }
  /// The ops of experts. Returns false for any other op.
  bool run_experts(const Instr& instr, std::vector<Vec>& values) const {
    const auto in = [&](std::size_t i) -> const Vec& {
      return values[static_cast<std::size_t>(instr.in[i])];
    };
    const auto out = [&](std::size_t i) -> Vec& { return values[static_cast<std::size_t>(instr.out[i])]; };
    if (instr.op == Op::router_top_k) {
      const auto& attrs = instr.attrs.as<RouterAttrs>();
      auto routing = reference::route(in(0), dim(instr.in[0], 1), static_cast<std::size_t>(attrs.k),
                                      attrs.rule, instr.in[1] == kNoValue ? Vec{} : in(1));
      out(0) = std::move(routing.experts);
      out(1) = std::move(routing.weights);
    } else if (instr.op == Op::route_rows) {
      auto order =
          reference::route_rows(in(0), static_cast<std::size_t>(instr.attrs.as<RouteRowsAttrs>().experts));
      out(0) = std::move(order.offsets);
      out(1) = std::move(order.source);
      out(2) = std::move(order.position);
    } else if (instr.op == Op::gather_rows) {
      out(0) = reference::gather_rows(in(0), in(1), static_cast<std::size_t>(instr.attrs.as<ChoiceAttrs>().k),
                                      dim(instr.in[0], 1));
    } else if (instr.op == Op::sum_rows) {
      out(0) = reference::sum_rows(in(0), in(2), static_cast<std::size_t>(instr.attrs.as<ChoiceAttrs>().k),
                                   dim(instr.in[0], 1), instr.in[3] == kNoValue ? Vec{} : in(3));
    } else if (instr.op == Op::expert_linear) {
      out(0) = reference::expert_linear(in(0), in(1), in(2), dim(instr.in[1], 1), dim(instr.in[1], 2),
                                        instr.in[3] == kNoValue ? Vec{} : in(3));
    } else if (instr.op == Op::router_bias) {
      out(0) = in(0);
      for (std::size_t i = 0; i < out(0).size(); ++i) out(0)[i] += in(1)[i % in(1).size()];
    } else if (instr.op == Op::expert_bias) {
      out(0) = reference::expert_bias(in(0), in(1), in(2), dim(instr.in[1], 1), dim(instr.in[0], 1));
    } else if (instr.op == Op::expert_scale) {
      out(0) = in(0);
      for (std::size_t i = 0; i < out(0).size(); ++i) out(0)[i] *= in(4)[static_cast<std::size_t>(in(1)[i])];
    } else if (instr.op == Op::expert_gate) {
      out(0) = reference::gate_rows(in(0), in(1), instr.in[2] == kNoValue ? Vec{} : in(2),
                                    dim(instr.in[0], 1) / instr.attrs.as<ExpertGateAttrs>().gate.parts(),
                                    instr.attrs.as<ExpertGateAttrs>().gate);
    } else if (instr.op == Op::router_sums) {
      out(0) = reference::router_sums(in(0), in(1), dim(instr.in[0], 1));
      if (instr.in[2] != kNoValue) out(0) = reference::add(out(0), in(2));
    } else if (instr.op == Op::router_losses) {
      // What is added to the loss here has the derivative that `zero` has by definition.
      const auto& attrs = instr.attrs.as<RouterLossAttrs>();
      out(1) = reference::router_losses(in(0), static_cast<double>(attrs.rows));
      out(0) = {static_cast<double>(attrs.aux_coef) * out(1)[0] +
                static_cast<double>(attrs.z_coef) * out(1)[1]};
    } else {
      return false;
    }
    return true;
  }
  void run(const Instr& instr, std::vector<Vec>& values) const {
    if (run_experts(instr, values) || MixerReference(program_, instr, values, doc_start_).run()) return;
    const auto in = [&](std::size_t i) -> const Vec& {
      return values[static_cast<std::size_t>(instr.in[i])];
    };
    const auto out = [&](std::size_t i) -> Vec& { return values[static_cast<std::size_t>(instr.out[i])]; };
    switch (instr.op) {
      case Op::embedding:
        out(0) =
            reference::embedding_forward(ids(instr.in[0]), in(1), dim(instr.in[1], 1),
                                         static_cast<std::size_t>(instr.attrs.as<EmbeddingAttrs>().offset));
        return;
      case Op::positions:
      case Op::rope_table:
        return;  // computed by positions() and speeds()
      case Op::rope:
        out(0) = rope(instr, in(0));
        return;
      case Op::rmsnorm:
        out(0) = rmsnorm(instr, in(0), in(1));
        return;
      case Op::add_rmsnorm:
        out(2) = reference::add(in(0), in(1));
        out(0) = rmsnorm(instr, out(2), in(2));
        return;
      case Op::add_layernorm:
        out(3) = reference::add(in(0), in(1));
        out(0) = layernorm(instr, out(3), in(2), in(3));
        return;
      case Op::qk_norm:
        out(0) = qk_norm(instr, in(0), in(1), in(2));
        return;
      case Op::scale:
        out(0) = in(0);
        for (double& value : out(0)) value *= static_cast<double>(instr.attrs.as<ScaleAttrs>().factor);
        return;
      case Op::dropout:
        out(0) = dropped(instr, in(0));
        return;
      case Op::relu:
        out(0) = reference::relu_forward(in(0));
        return;
      case Op::swiglu:
        out(0) = (instr.attrs.as<SwigluAttrs>().gelu ? reference::geglu_forward : reference::swiglu_forward)(
            in(0), dim(instr.in[0], 1) / 2);
        return;
      case Op::layernorm:
        out(0) = layernorm(instr, in(0), in(1), in(2));
        return;
      case Op::linear:
        out(0) = reference::linear_forward(in(0), in(1), instr.in[2] == kNoValue ? Vec{} : in(2),
                                           dim(instr.in[0], 0), dim(instr.in[1], 0), dim(instr.in[1], 1));
        return;
      case Op::linear_backward_input: {
        const std::size_t inner = dim(instr.in[1], 0), columns = dim(instr.in[1], 1);
        out(0).assign(dim(instr.in[0], 0) * columns, 0.0);
        for (std::size_t i = 0; i < out(0).size(); ++i)
          for (std::size_t k = 0; k < inner; ++k)
            out(0)[i] += in(0)[i / columns * inner + k] * in(1)[k * columns + i % columns];
        return;
      }
      case Op::lora_up: {
        const std::size_t columns = dim(instr.in[0], 1), ranks = dim(instr.in[1], 1);
        std::size_t first_column = 0, first_elem = 0;
        out(0) = in(0);
        for (const LoraPart& part : instr.attrs.as<LoraAttrs>().all()) {
          const auto rows = static_cast<std::size_t>(part.rows), rank = static_cast<std::size_t>(part.rank),
                     first_row = static_cast<std::size_t>(part.first_row);
          for (std::size_t t = 0; t < dim(instr.in[0], 0); ++t)
            for (std::size_t i = 0; i < rows; ++i)
              for (std::size_t j = 0; j < rank; ++j)
                out(0)[t * columns + first_row + i] +=
                    in(1)[t * ranks + first_column + j] * in(2)[first_elem + i * rank + j];
          first_column += rank;
          first_elem += rows * rank;
        }
        return;
      }
      case Op::dora_norm:
        if (const auto held = norms_.find(instr.out[0]); held == norms_.end())
          norms_[instr.out[0]] = adapted_norms(instr, in(0), in(1), in(2));
        out(0) = norms_[instr.out[0]];
        return;
      case Op::scale_columns:
        out(0) = in(0);
        for_each_row(instr.attrs.as<LoraAttrs>(), [&](std::size_t row, std::size_t column) {
          for (std::size_t t = 0; t < dim(instr.in[0], 0); ++t)
            out(0)[t * dim(instr.in[0], 1) + column] *= in(1)[row] / in(2)[row];
        });
        for (std::size_t i = 0; instr.in[3] != kNoValue && i < out(0).size(); ++i)
          out(0)[i] += in(3)[i % in(3).size()];
        return;
      case Op::splice_rows:
        out(0) = splice_rows(instr, in(0), in(1));
        return;
      case Op::drop_rows: {
        const auto& attrs = instr.attrs.as<VirtualRowsAttrs>();
        const auto n = static_cast<std::size_t>(attrs.n), seq = static_cast<std::size_t>(attrs.seq);
        out(0) = rows_of(instr, in(0), n + seq, n, seq);
        return;
      }
      case Op::gelu:
        out(0) = reference::gelu_forward(in(0));
        return;
      case Op::add:
        out(0) = reference::add(in(0), in(1));
        return;
      case Op::attention:
        out(0) = attention(instr, in(0), instr.in[2] == kNoValue ? Vec{} : in(2));
        return;
      case Op::cross_entropy:
        out(0) = {reference::cross_entropy_forward(in(0), targets_, dim(instr.in[0], 1)).mean_loss};
        return;
      case Op::linear_cross_entropy: {
        Vec logits = reference::linear_forward(in(0), in(1), {}, dim(instr.in[0], 0), dim(instr.in[1], 0),
                                               dim(instr.in[1], 1));
        if (const auto cap = static_cast<double>(instr.attrs.as<LinearCrossEntropyAttrs>().softcap); cap > 0)
          for (double& logit : logits) logit = cap * std::tanh(logit / cap);
        out(0) = {reference::cross_entropy_forward(logits, targets_, dim(instr.in[1], 0)).mean_loss};
        return;
      }
      default:
        STRATA_ASSERT(false, "no forward op");
    }
  }

  const Program& program_;
  const Ints tokens_, targets_, doc_start_, keys_;
  mutable std::map<ValueId, Vec> norms_;
};

}  // namespace strata::test
