#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/program.h>

#include "support/reference/recurrent.h"
#include "support/reference_ops.h"

namespace strata::test {

/// The ops of layers that mix tokens in another way than plain attention, in f64.
class MixerReference {
 public:
  using Vec = reference::Vec;
  /// `doc_start`: of each token, as kernels/recurrent/delta_rule.h has it; empty: rows hold one text.
  MixerReference(const Program& program, const Instr& instr, std::vector<Vec>& values,
                 const reference::Ints& doc_start)
      : program_(program), instr_(instr), values_(values), doc_start_(doc_start) {}

  /// Returns false for any other op.
  bool run() const {
    switch (instr_.op) {
      case Op::divide_columns:
        divide_columns();
        return true;
      case Op::unite_columns:
        unite_columns();
        return true;
      case Op::scale_by:
        out(0) = in(0);
        for (double& x : out(0)) x *= in(1)[0];
        return true;
      case Op::multiply:
        out(0) = in(0);
        for (std::size_t i = 0; i < out(0).size(); ++i) out(0)[i] *= in(1)[i];
        return true;
      case Op::sigmoid_gate:
        out(0) = in(0);
        for (std::size_t i = 0; i < out(0).size(); ++i) out(0)[i] /= 1 + std::exp(-in(1)[i]);
        return true;
      case Op::silu_gate:
        out(0) = in(0);
        for (std::size_t i = 0; i < out(0).size(); ++i) out(0)[i] *= silu(in(1)[i]);
        return true;
      case Op::relu2:
        out(0) = in(0);
        for (double& x : out(0)) x = x > 0 ? x * x : 0.0;
        return true;
      case Op::scale_parts:
        scale_parts();
        return true;
      case Op::latent_qkv:
        latent_qkv();
        return true;
      case Op::trim_heads:
        trim_heads();
        return true;
      case Op::causal_conv:
        causal_conv();
        return true;
      case Op::delta_gates:
        delta_gates();
        return true;
      case Op::delta_rule:
        delta_rule();
        return true;
      case Op::scan_gates:
        scan_gates();
        return true;
      case Op::state_scan:
        state_scan();
        return true;
      case Op::gated_rmsnorm:
        gated_rmsnorm();
        return true;
      default:
        return false;
    }
  }

 private:
  const Vec& in(std::size_t i) const { return values_[static_cast<std::size_t>(instr_.in[i])]; }
  Vec& out(std::size_t i) const { return values_[static_cast<std::size_t>(instr_.out[i])]; }
  std::int64_t rows() const { return program_.value(instr_.in[0]).shape.dim(0); }
  static void append(Vec& into, const Vec& from, std::int64_t first, std::int64_t n) {
    into.insert(into.end(), from.begin() + first, from.begin() + first + n);
  }

  void divide_columns() const {
    const kernels::DividedColumns& c = instr_.attrs.as<DividedColumnsAttrs>().columns;
    Vec first, second;
    std::int64_t at = 0;
    for (std::int64_t row = 0; row < rows(); ++row) {
      for (std::int64_t group = 0; group < c.groups; ++group, at += c.first + c.second) {
        append(first, in(0), at, c.first);
        append(second, in(0), at + c.first, c.second);
      }
      append(first, in(0), at, c.tail);
      at += c.tail;
    }
    out(0) = first;
    out(1) = second;
  }
  void unite_columns() const {
    const kernels::DividedColumns& c = instr_.attrs.as<DividedColumnsAttrs>().columns;
    Vec x;
    std::int64_t of_first = 0, of_second = 0;
    for (std::int64_t row = 0; row < rows(); ++row) {
      for (std::int64_t group = 0; group < c.groups; ++group) {
        append(x, in(0), of_first, c.first);
        append(x, in(1), of_second, c.second);
        of_first += c.first;
        of_second += c.second;
      }
      append(x, in(0), of_first, c.tail);
      of_first += c.tail;
    }
    out(0) = x;
  }
  void latent_qkv() const {
    const kernels::LatentHeads& h = instr_.attrs.as<LatentHeadsAttrs>().heads;
    Vec qkv;
    for (std::int64_t row = 0; row < rows(); ++row) {
      const std::int64_t q = row * h.q_width(), kv = row * h.kv_width(), of_kv = h.kv_width() / h.heads;
      for (std::int64_t head = 0; head < h.heads; ++head) {
        append(qkv, in(0), q + head * h.head_dim() + h.plain, h.rotated);
        append(qkv, in(0), q + head * h.head_dim(), h.plain);
      }
      for (std::int64_t head = 0; head < h.heads; ++head) {
        append(qkv, in(2), row * h.rotated, h.rotated);
        append(qkv, in(1), kv + head * of_kv, h.plain);
      }
      for (std::int64_t head = 0; head < h.heads; ++head) {
        append(qkv, in(1), kv + head * of_kv + h.plain, h.value);
        qkv.insert(qkv.end(), static_cast<std::size_t>(h.head_dim() - h.value), 0.0);
      }
    }
    out(0) = qkv;
  }
  void trim_heads() const {
    const kernels::LatentHeads& h = instr_.attrs.as<LatentHeadsAttrs>().heads;
    Vec y;
    for (std::int64_t head = 0; head < rows() * h.heads; ++head)
      append(y, in(0), head * h.head_dim(), h.value);
    out(0) = y;
  }

  /// The row of the first token of a row's document.
  std::int64_t first_row(std::int64_t row, std::int64_t seq) const {
    return row / seq * seq + (doc_start_.empty() ? 0 : doc_start_[static_cast<std::size_t>(row)]);
  }
  static double silu(double x) { return x / (1 + std::exp(-x)); }

  void causal_conv() const {
    const auto& attrs = instr_.attrs.as<CausalConvAttrs>();
    const Shape& shape = program_.value(instr_.in[1]).shape;
    const std::int64_t channels = shape.dim(0), taps = shape.dim(1);
    Vec y;
    for (std::int64_t row = 0; row < rows(); ++row)
      for (std::int64_t c = 0; c < channels; ++c) {
        double sum = instr_.in[2] == kNoValue ? 0.0 : in(2)[static_cast<std::size_t>(c)];
        for (std::int64_t back = 0; back < taps && row - back >= first_row(row, attrs.seq); ++back)
          sum += in(1)[static_cast<std::size_t>(c * taps + taps - 1 - back)] *
                 in(0)[static_cast<std::size_t>((row - back) * channels + c)];
        y.push_back(attrs.silu ? silu(sum) : sum);
      }
    out(0) = y;
  }
  void delta_gates() const {
    const std::size_t heads = in(1).size();
    Vec g, beta;
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows()) * heads; ++i) {
      const std::size_t at = i / heads * 2 * heads, head = i % heads;
      beta.push_back(1 / (1 + std::exp(-in(0)[at + head])));
      g.push_back(-std::exp(in(1)[head]) * std::log1p(std::exp(in(0)[at + heads + head] + in(2)[head])));
    }
    out(0) = g;
    out(1) = beta;
  }
  void delta_rule() const {
    const kernels::DeltaHeads& heads = instr_.attrs.as<DeltaRuleAttrs>().heads;
    std::vector<bool> begins;
    for (std::int64_t row = 0; row < rows(); ++row) begins.push_back(row == first_row(row, heads.seq));
    const Vec none(static_cast<std::size_t>(rows() * heads.out_width()));
    out(0) = reference::DeltaRule(heads, in(0), in(1), in(2), none, begins).results.out;
  }
  void scan_gates() const {
    const kernels::StepLimits& limits = instr_.attrs.as<ScanGatesAttrs>().limits;
    const std::size_t heads = in(1).size();
    Vec step, g;
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows()) * heads; ++i) {
      const double plain = std::log1p(std::exp(in(0)[i] + in(2)[i % heads]));
      step.push_back(std::clamp(plain, static_cast<double>(limits.low), static_cast<double>(limits.high)));
      g.push_back(-std::exp(in(1)[i % heads]) * step.back());
    }
    out(0) = step;
    out(1) = g;
  }
  void state_scan() const {
    const kernels::ScanHeads& h = instr_.attrs.as<StateScanAttrs>().heads;
    const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    Vec y(at(rows() * h.out_width())), states(at(std::int64_t{h.heads} * h.state_dim * h.head_dim));
    for (std::int64_t row = 0; row < rows(); ++row) {
      if (row == first_row(row, h.seq)) states.assign(states.size(), 0.0);
      const std::int64_t xbc = row * h.xbc_width(), b = xbc + h.out_width();
      for (std::int64_t head = 0; head < h.heads; ++head) {
        const std::int64_t of_head = row * h.heads + head, of_group = head / h.group() * h.state_dim;
        for (std::int64_t p = 0; p < h.head_dim; ++p) {
          const double x = in(0)[at(xbc + head * h.head_dim + p)];
          double sum = in(3)[at(head)] * x;
          for (std::int64_t n = 0; n < h.state_dim; ++n) {
            double& state = states[at((head * h.state_dim + n) * h.head_dim + p)];
            state =
                std::exp(in(2)[at(of_head)]) * state + in(0)[at(b + of_group + n)] * in(1)[at(of_head)] * x;
            sum += state * in(0)[at(b + std::int64_t{h.groups} * h.state_dim + of_group + n)];
          }
          y[at(row * h.out_width() + head * h.head_dim + p)] = sum;
        }
      }
    }
    out(0) = y;
  }
  void scale_parts() const {
    const kernels::ColumnScales& scales = instr_.attrs.as<ScalePartsAttrs>().scales;
    out(0) = in(0);
    std::size_t at = 0;
    while (at < out(0).size())
      for (std::size_t part = 0; part < static_cast<std::size_t>(scales.parts); ++part)
        for (std::int32_t i = 0; i < scales.widths[part]; ++i)
          out(0)[at++] *= static_cast<double>(scales.factors[part]);
  }
  void gated_rmsnorm() const {
    const auto& attrs = instr_.attrs.as<GatedRmsnormAttrs>();
    const auto n = attrs.head_dim > 0 ? static_cast<std::size_t>(attrs.head_dim) : in(2).size();
    Vec y;
    for (std::size_t at = 0; at < in(0).size(); at += n) {
      Vec x(in(0).begin() + static_cast<std::ptrdiff_t>(at),
            in(0).begin() + static_cast<std::ptrdiff_t>(at + n));
      for (std::size_t i = 0; attrs.gate_first && i < n; ++i) x[i] *= silu(in(1)[at + i]);
      double squares = 0;
      for (const double value : x) squares += value * value;
      const double rms = std::sqrt(squares / static_cast<double>(n) + static_cast<double>(attrs.eps));
      for (std::size_t i = 0; i < n; ++i)
        y.push_back(x[i] / rms * in(2)[(at + i) % in(2).size()] *
                    (attrs.gate_first ? 1.0 : silu(in(1)[at + i])));
    }
    out(0) = y;
  }

  const Program& program_;
  const Instr& instr_;
  std::vector<Vec>& values_;
  const reference::Ints& doc_start_;
};

}  // namespace strata::test
