#pragma once

#include <cmath>
#include <vector>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/program.h>

#include "support/reference_ops.h"

namespace strata::test {

/// The ops of layers that mix tokens in another way than plain attention, in f64.
class MixerReference {
 public:
  using Vec = reference::Vec;
  MixerReference(const Program& program, const Instr& instr, std::vector<Vec>& values)
      : program_(program), instr_(instr), values_(values) {}

  /// Returns false for any other op.
  bool run() const {
    switch (instr_.op) {
      case Op::divide_columns:
        divide_columns();
        return true;
      case Op::multiply:
        out(0) = in(0);
        for (std::size_t i = 0; i < out(0).size(); ++i) out(0)[i] *= in(1)[i];
        return true;
      case Op::sigmoid_gate:
        out(0) = in(0);
        for (std::size_t i = 0; i < out(0).size(); ++i) out(0)[i] /= 1 + std::exp(-in(1)[i]);
        return true;
      case Op::latent_qkv:
        latent_qkv();
        return true;
      case Op::trim_heads:
        trim_heads();
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

  const Program& program_;
  const Instr& instr_;
  std::vector<Vec>& values_;
};

}  // namespace strata::test
