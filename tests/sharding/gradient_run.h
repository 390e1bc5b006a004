#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <strata/graph/op_list.h>
#include <strata/graph/partition.h>
#include <strata/graph/passes.h>
#include <strata/model/decoder.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

#include "sharding/sharded_run.h"
#include "support/experts/tiny_experts.h"

namespace strata::test {

/// Heads enough for eight ranks, or for three, and a vocabulary that no ranks divide.
inline DecoderConfig small_config(std::string_view family, int ranks = 2) {
  DecoderConfig config = decoder_for_family(family).value();
  config.layers = 2;
  config.hidden = 32;
  config.heads = 8;
  config.kv_heads = config.norm == DecoderConfig::Norm::rms ? 4 : 8;
  config.ffn = 48;
  config.vocab = 41;
  config.seq = 8;
  set_tiny_experts(config);
  if (ranks != 3) return config;
  config.hidden = 48;
  config.heads = 6;
  config.kv_heads = config.norm == DecoderConfig::Norm::rms ? 3 : 6;
  config.vocab = 43;
  config.seq = 12;
  return config;
}
inline constexpr std::int64_t kBatch = 2;

inline std::vector<ShardAnnotation> annotations(std::vector<std::string> texts) {
  std::vector<ShardAnnotation> all;
  std::string axis;
  for (const std::string& text : texts) all.push_back(must(parse_annotation(text, axis)));
  return all;
}
inline const std::vector<std::string> kMegatron = {"layers.*.qkv.weight 0:tp", "layers.*.mlp_in.weight 0:tp"};
inline const std::vector<std::string> kUlysses = {"embed/embedding 0:tp", "layers.*/attention 1:tp",
                                                  "layers.*/linear 0:tp"};
inline std::vector<std::string> with_sequence_parallelism() {
  std::vector<std::string> texts = kMegatron;
  texts.insert(texts.end(), {"embed/embedding 0:tp", "layers.*/add 0:tp"});
  return texts;
}

/// Values of whole parameters, a function of their names and elements.
inline std::vector<float> drawn(const ParamInfo& param, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(param.shape.n_elems()));
  const Rng rng(std::hash<std::string>()(param.name), seed);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = param.init.mean + 0.2f * (static_cast<float>(rng.below(i, 2001)) / 1000 - 1);
  return values;
}

struct Gradients {
  float loss = 0;
  NamedValues of;
};

/// Rows of the table in which the tokens are looked up.
inline std::uint64_t vocab_of(const Program& program) {
  for (const Instr& instr : program.code)
    if (instr.op == Op::embedding && program.value(instr.in[0]).name == "tokens")
      return static_cast<std::uint64_t>(program.value(instr.in[1]).shape.dim(0));
  return 0;
}

inline void fill_inputs(ShardedRun& run, const Program& program, std::uint64_t vocab) {
  for (const ValueId id : program.inputs) {
    const ValueInfo& info = program.value(id);
    if (info.dtype == DType::f32) {
      const float divisor = static_cast<float>(kBatch * 8);
      run.set(id, &divisor);
      continue;
    }
    std::vector<std::int32_t> values(static_cast<std::size_t>(info.shape.n_elems()));
    const Rng rng(info.name == "tokens" ? 3 : 4, 2);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<std::int32_t>(rng.below(i, vocab));
    run.set(id, values.data());
  }
}

/// Runs a program with its derivative on a rank that has these shards.
inline Gradients gradients(const Program& forward, const Program& whole, Rank& rank, const AxisGroups& axes,
                           std::uint64_t seed) {
  const Program program = simplify_collectives(must(derive_backward(forward, "loss")));
  ShardedRun run(program, rank, axes);
  fill_inputs(run, program, vocab_of(whole));
  for (std::size_t p = 0; p < program.params.size(); ++p) {
    const std::vector<float> own = part_of(drawn(whole.params[p], seed), program.params[p].part);
    EXPECT_EQ(std::ssize(own), program.params[p].shape.n_elems()) << program.params[p].name;
    run.set_values(program.params[p].value, own);
  }
  const Status ran = run.run();
  EXPECT_TRUE(ran.is_ok()) << ran.to_string();
  Gradients found;
  found.loss = run.values(program.find("loss")).front();
  for (const ParamInfo& param : program.params)
    if (param.grad != kNoValue) found.of[param.name] = run.values(param.grad);
  return found;
}

inline Gradients gradients_of_one(const Program& whole, std::uint64_t seed = 1) {
  Gradients found;
  make_ranks(1, StreamSchedule::latest_legal)->must_run([&](Rank& rank) -> Status {
    found = gradients(whole, whole, rank, {}, seed);
    return {};
  });
  return found;
}

inline double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::fabs(static_cast<double>(value)));
  return most;
}

/// An axis of a mesh with what is annotated along it. `axis.rank` is set by rank.
struct Along {
  ShardAxis axis;
  std::vector<ShardAnnotation> texts;
};
inline ShardAxis tp_axis(int ranks) { return {.name = "tp", .number = 0, .ranks = ranks}; }

/// Called on a rank's thread, with its program, its gradients and its number.
using CheckRank = std::function<void(const Program&, const Gradients&, int)>;

/// Runs every rank's program. `axes`: numbers and ranks of the axes of the mesh, of which the last one has
/// neighbours in number.
inline void run_parts(const Program& whole, const std::vector<std::pair<std::int32_t, int>>& axes,
                      const std::function<Result<Program>(int rank)>& part_of_rank, const CheckRank& check,
                      std::uint64_t seed = 1) {
  int ranks = 1;
  for (const auto& [number, size] : axes) ranks *= size;
  make_ranks(ranks, StreamSchedule::latest_legal)->must_run([&](Rank& rank) -> Status {
    std::vector<std::unique_ptr<ProcessGroup>> groups;
    AxisGroups of_axis;
    int stride = ranks;
    for (const auto& [number, size] : axes) {
      stride /= size;
      const int place = rank.index() / stride % size;
      std::vector<int> members;
      for (int i = 0; i < size; ++i) members.push_back(rank.index() + (i - place) * stride);
      STRATA_TRY_ASSIGN(std::unique_ptr<ProcessGroup> group, rank.group.split(members));
      of_axis[number] = group.get();
      groups.push_back(std::move(group));
    }
    STRATA_TRY_ASSIGN(const Program part, part_of_rank(rank.index()));
    check(part, gradients(part, whole, rank, of_axis, seed), rank.index());
    return {};
  });
}

/// The program is partitioned along the axes in their order.
inline void run_mesh(const Program& whole, const std::vector<Along>& mesh, const CheckRank& check,
                     std::uint64_t seed = 1) {
  std::vector<std::pair<std::int32_t, int>> axes;
  for (const Along& along : mesh) axes.emplace_back(along.axis.number, along.axis.ranks);
  const auto part_of_rank = [&](int rank) -> Result<Program> {
    Program part = whole;
    int stride = 1;
    for (const Along& along : mesh) stride *= along.axis.ranks;
    for (const Along& along : mesh) {
      ShardAxis axis = along.axis;
      stride /= axis.ranks;
      axis.rank = rank / stride % axis.ranks;
      STRATA_TRY_ASSIGN(part, partition(part, axis, along.texts));
    }
    return part;
  };
  run_parts(whole, axes, part_of_rank, check, seed);
}

/// Compares every rank's gradients with its part of the whole ones, relative to the largest of the tensor.
inline CheckRank same_as_one(const Program& whole, double tolerance = 1e-5) {
  return [&whole, tolerance, expected = gradients_of_one(whole)](const Program& part, const Gradients& found,
                                                                 int rank) {
    EXPECT_NEAR(found.loss, expected.loss, tolerance * std::fabs(expected.loss));
    for (std::size_t p = 0; p < whole.params.size(); ++p) {
      const std::string& name = whole.params[p].name;
      if (!whole.params[p].trainable) continue;
      const std::vector<float>& all = expected.of.at(name);
      const std::vector<float> own = part_of(all, part.params[p].part);
      const std::vector<float>& is = found.of.at(name);
      EXPECT_EQ(is.size(), own.size()) << name;
      double worst = 0;
      for (std::size_t i = 0; i < is.size(); ++i)
        worst = std::max(worst, std::fabs(static_cast<double>(is[i]) - own[i]));
      EXPECT_LE(worst, tolerance * std::max(largest(all), 1e-3)) << name << " on rank " << rank;
    }
  };
}
inline void expect_same(const Program& whole, const std::vector<Along>& mesh, double tolerance = 1e-5) {
  run_mesh(whole, mesh, same_as_one(whole, tolerance));
}
inline void expect_same(const Program& whole, int ranks, std::vector<ShardAnnotation> texts,
                        double tolerance = 1e-5) {
  expect_same(whole, {{tp_axis(ranks), std::move(texts)}}, tolerance);
}
/// The same for ranks that have parts of the sequences.
inline void expect_same_in_parts(const Program& whole, int ranks, std::int64_t seq,
                                 std::vector<ShardAnnotation> texts, bool rings) {
  for (const bool zigzag : {false, true}) {
    if (seq % (ranks * (zigzag ? 2 : 1)) != 0) continue;
    ShardAxis axis = tp_axis(ranks);
    axis.rows = Cut::of_sequences(kBatch, seq, ranks, zigzag);
    axis.rings_attention = rings;
    expect_same(whole, {{axis, texts}});
  }
}

}  // namespace strata::test
