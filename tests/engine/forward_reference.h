#pragma once

#include <map>
#include <string>

#include <strata/graph/program.h>
#include <strata/runtime/assert.h>

#include "support/reference_ops.h"

namespace strata::test {

/// Runs a program's forward in f64 by the naive ops and returns the output "loss". Parameters are by name.
class ForwardReference {
 public:
  using Vec = reference::Vec;
  using Ints = reference::Ints;
  ForwardReference(const Program& program, Ints tokens, Ints targets)
      : program_(program), tokens_(std::move(tokens)), targets_(std::move(targets)) {}

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

  void run(const Instr& instr, std::vector<Vec>& values) const {
    const auto in = [&](std::size_t i) -> const Vec& {
      return values[static_cast<std::size_t>(instr.in[i])];
    };
    const auto out = [&](std::size_t i) -> Vec& { return values[static_cast<std::size_t>(instr.out[i])]; };
    switch (instr.op) {
      case Op::embedding:
        out(0) = reference::embedding_forward(tokens_, in(1), in(2), dim(instr.in[1], 1),
                                              static_cast<std::size_t>(instr.attrs.seq));
        return;
      case Op::layernorm:
        out(0) = reference::layernorm_forward(in(0), in(1), in(2), static_cast<double>(instr.attrs.eps)).y;
        return;
      case Op::linear:
        out(0) = reference::linear_forward(in(0), in(1), instr.in[2] == kNoValue ? Vec{} : in(2),
                                           dim(instr.in[0], 0), dim(instr.in[1], 0), dim(instr.in[1], 1));
        return;
      case Op::gelu:
        out(0) = reference::gelu_forward(in(0));
        return;
      case Op::add:
        out(0) = reference::add(in(0), in(1));
        return;
      case Op::attention: {
        const auto seq = static_cast<std::size_t>(instr.attrs.seq),
                   heads = static_cast<std::size_t>(instr.attrs.heads);
        const reference::AttentionShape shape{dim(instr.in[0], 0) / seq, seq, heads,
                                              dim(instr.in[0], 1) / 3 / heads};
        out(0) = reference::attention_forward(in(0), shape).out;
        return;
      }
      case Op::cross_entropy:
        out(0) = {reference::cross_entropy_forward(in(0), targets_, dim(instr.in[0], 1)).mean_loss};
        return;
      default:
        STRATA_ASSERT(false, "no forward op");
    }
  }

  const Program& program_;
  const Ints tokens_, targets_;
};

}  // namespace strata::test
