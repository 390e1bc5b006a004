#pragma once

#include <cmath>

#include <strata/graph/subspace_passes.h>
#include <strata/runtime/str.h>

#include "engine/execute/first_gradients.h"
#include "engine/states.h"
#include "engine/tiny_run.h"

/// Runs whose matrices are trained in subspaces of their gradients.
namespace strata::test::subspace {

inline constexpr std::int64_t kRank = 4;

inline LoraModule module_of(const std::string& weight, std::int64_t first_row, std::int64_t rows,
                            std::int64_t columns) {
  return {.weight = weight,
          .part = {first_row, rows, kRank},
          .trained = rows >= columns ? LoraTrained::b : LoraTrained::a};
}

/// Every matrix of the blocks, with bases on both sides: of queries, keys and values by themselves.
inline std::vector<LoraGroup> groups_of(const DecoderConfig& config) {
  const DecoderConfig c = with_derived_sizes(config);
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  std::vector<LoraModule> modules;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string name = str("layers.", layer, ".");
    modules.push_back(module_of(name + "qkv.weight", 0, q, c.hidden));
    modules.push_back(module_of(name + "qkv.weight", q, kv, c.hidden));
    modules.push_back(module_of(name + "qkv.weight", q + kv, kv, c.hidden));
    modules.push_back(module_of(name + "attn_out.weight", 0, c.hidden, q));
    if (is_gated(c.mlp)) modules.push_back(module_of(name + "mlp_in.weight", c.ffn, c.ffn, c.hidden));
    modules.push_back(module_of(name + "mlp_in.weight", 0, c.ffn, c.hidden));
    modules.push_back(module_of(name + "mlp_out.weight", 0, c.hidden, c.ffn));
  }
  return group_lora_modules(modules);
}

struct Kind {
  Recompute recompute = Recompute::none;
  DType compute = DType::f32;
  bool clips = true;               ///< whether the norm is that of the whole gradient
  std::int32_t micro_batches = 1;  ///< micro-batches of a step
  std::int32_t of_train = 0;       ///< micro-batches that the training program covers; 0: all
  kernels::SvdMethod method = kernels::SvdMethod::exact;
};

inline ProgramSet programs_of(const DecoderConfig& config, const Kind& kind = {}) {
  const std::vector<LoraGroup> groups = groups_of(config);
  const auto record = [&](std::int64_t batch, DecoderHead head) {
    return must(record_decoder(config, batch, head, DecoderRows::whole, kind.compute));
  };
  const Program base = record(3, DecoderHead::loss), forward = must(add_lora(base, groups));
  const auto backward = [&](Program program, std::int32_t micro_batches) {
    program = recompute_regions(must(derive_backward(std::move(program), "loss")), kind.recompute);
    return interleave_micro_batches(program, micro_batches);
  };
  Program train = backward(kind.clips ? forward : must(freeze_matrices(forward, groups)),
                           kind.of_train == 0 ? kind.micro_batches : kind.of_train);
  if (kind.clips) train = must(add_gradient_outside(std::move(train), groups));
  ProgramSet set;
  set[ProgramRole::train] = fuse_add_norm(std::move(train));
  set[ProgramRole::eval] = fuse_add_norm(forward);
  set[ProgramRole::infer] = fuse_add_norm(must(add_lora(record(1, DecoderHead::logits), groups)));
  set[ProgramRole::refresh] = fuse_add_norm(must(find_bases(
      backward(must(train_only_matrices(base, groups)), kind.micro_batches), groups, kind.method)));
  return set;
}

/// The elements of a basis: of each part, a matrix whose rows or columns are its vectors.
struct BasisPart {
  LoraPart part;
  std::size_t begin = 0;  ///< in the parameter
  std::int64_t vectors = 0, length = 0;
  bool in_rows = true;  ///< a vector's elements are next to each other; else every `vectors`-th is one of its
  std::size_t at(std::int64_t vector, std::int64_t i) const {
    return begin + static_cast<std::size_t>(in_rows ? vector * length + i : i * vectors + vector);
  }
};
inline std::vector<BasisPart> parts_of(const LoraGroup& group, std::int64_t columns) {
  const bool right = group.trained == LoraTrained::b;
  std::vector<BasisPart> parts;
  std::size_t begin = 0;
  for (const LoraPart& part : group.parts.all()) {
    parts.push_back({part, begin, part.rank, right ? columns : part.rows, right});
    begin += static_cast<std::size_t>(part.rank * parts.back().length);
  }
  return parts;
}

/// Makes the vectors of a part orthonormal (Gram-Schmidt, in double).
inline void orthonormalize(const BasisPart& part, std::vector<float>& values) {
  std::vector<std::vector<double>> done;
  for (std::int64_t v = 0; v < part.vectors; ++v) {
    std::vector<double> x;
    for (std::int64_t i = 0; i < part.length; ++i) x.push_back(values[part.at(v, i)]);
    const auto dot = [&](const std::vector<double>& y) {
      double sum = 0;
      for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
      return sum;
    };
    for (const std::vector<double>& other : done) {
      const double share = dot(other);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] -= share * other[i];
    }
    const double norm = std::sqrt(dot(x));
    for (double& value : x) value /= norm;
    for (std::int64_t i = 0; i < part.length; ++i)
      values[part.at(v, i)] = static_cast<float>(x[static_cast<std::size_t>(i)]);
    done.push_back(std::move(x));
  }
}

/// The gradient of a part's factor: its rows of the matrix's gradient, projected on the basis.
inline std::vector<double> projected(const std::vector<float>& gradient, std::int64_t columns,
                                     const BasisPart& part, const std::vector<float>& basis) {
  const bool right = part.in_rows;
  const std::int64_t outer = right ? part.part.rows : columns;
  std::vector<double> result(static_cast<std::size_t>(outer * part.vectors));
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t v = 0; v < part.vectors; ++v) {
      double sum = 0;
      for (std::int64_t i = 0; i < part.length; ++i) {
        const std::int64_t row = part.part.first_row + (right ? o : i), column = right ? i : o;
        sum += static_cast<double>(gradient[static_cast<std::size_t>(row * columns + column)]) *
               static_cast<double>(basis[part.at(v, i)]);
      }
      result[static_cast<std::size_t>(right ? o * part.vectors + v : v * outer + o)] = sum;
    }
  return result;
}

inline double square_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

/// The sum of squares of the rows of a part.
inline double square_of_rows(const std::vector<float>& gradient, std::int64_t columns, const LoraPart& part) {
  double sum = 0;
  for (std::int64_t i = part.first_row * columns; i < (part.first_row + part.rows) * columns; ++i)
    sum += static_cast<double>(gradient[static_cast<std::size_t>(i)]) *
           static_cast<double>(gradient[static_cast<std::size_t>(i)]);
  return sum;
}

inline bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts)
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

/// Random parameters, orthonormal bases, and factors that are zero.
inline StateTensors start_of(const std::vector<LoraGroup>& groups, const RunPlan& plan) {
  StateTensors values;
  for (const LayoutTensor& tensor : plan.tensors.specs) {
    std::vector<float>& of = values[tensor.name];
    of.resize(static_cast<std::size_t>(tensor.n_elems));
    must(random_values({tensor.name, 0, tensor.n_elems}, of));
  }
  for (const LoraGroup& group : groups) {
    const auto columns = static_cast<std::int64_t>(values.at(group.a).size()) / group.ranks();
    for (const BasisPart& part : parts_of(group, columns)) orthonormalize(part, values.at(group.basis()));
    std::fill(values.at(group.factor()).begin(), values.at(group.factor()).end(), 0.0f);
    if (const auto outside = values.find(group.outside); outside != values.end()) outside->second = {0.0f};
  }
  return values;
}

/// Learning rates of a run: the parameters that only measure stay zero.
inline SessionOptions options_of(std::int32_t grad_accum = 1, double clip = 1.0) {
  SessionOptions options;
  options.grad_accum = grad_accum;
  options.clip = clip;
  options.groups = {{"*.lora_outside*", 0, 0.0}};
  if (clip == 0) options.groups.clear();
  return options;
}

}  // namespace strata::test::subspace
