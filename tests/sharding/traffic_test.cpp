// Compares the bytes that ranks that share a model send with the formulas of the techniques.
#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>

#include <gtest/gtest.h>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/runtime/str.h>
#include <strata/session/ranks/rank_traffic.h>

#include "sharding/split_run.h"

namespace strata {
namespace {

using test::SplitCase;

/// Sizes in bytes of a decoder of the kind of LLaMA, in f32, and what collectives of n ranks send of them.
struct Formula {
  double n = 1;  ///< ranks
  /// Elements of all tokens: [T, h], [T, h + 2 h_kv], [T, 2 h_kv], [T].
  double act = 0, qkv = 0, kv = 0, tokens = 0;
  double ffn = 0;                             ///< [T, f]
  double norms = 0, table = 0, matrices = 0;  ///< parameters: of norms, tokens or head, and all of the blocks
  double layers = 0;

  double gather(double bytes) const { return (n - 1) / n * bytes; }  ///< or reduce-scatter
  double sum(double bytes) const { return 2 * gather(bytes); }
  double exchange(double bytes) const {
    return (n - 1) / n * bytes / n;
  }  ///< all-to-all, of all ranks' bytes
  static constexpr double kLoss = 4;
};

/// Large enough that computing something twice costs more than sending it.
DecoderConfig realistic_model() {
  DecoderConfig config = test::split_model("llama", false);
  config.hidden = 2048;
  config.heads = 16;
  config.kv_heads = 8;
  config.ffn = 5504;
  config.vocab = 32000;
  config.seq = 1024;
  return config;
}

Formula formula_of(const DecoderConfig& c, double ranks) {
  const auto e = [](std::int64_t n) { return 4.0 * static_cast<double>(n); };
  const std::int64_t rows = test::kSplitSequences * c.seq, kv = c.hidden / c.heads * c.kv_heads;
  return {
      .n = ranks,
      .act = e(rows * c.hidden),
      .qkv = e(rows * (c.hidden +
                       2 * kv * std::max<std::int64_t>(1, static_cast<std::int64_t>(ranks) / c.kv_heads))),
      .kv = e(rows * 2 * kv),
      .tokens = e(rows),
      .norms = e((2 * c.layers + 1) * c.hidden),
      .table = e(c.vocab * c.hidden),
      .matrices = e(c.layers * c.hidden * (2 * c.hidden + 2 * kv + 3 * c.ffn)),
      .layers = static_cast<double>(c.layers)};
}

/// Payload bytes that a rank sends for the collectives of a program.
double sent_by(const Program& program) {
  double sum = 0;
  for (const Instr& instr : program.code) {
    if (!is_collective(instr.op) || instr.op == Op::shift_end) continue;
    const auto& a = instr.attrs.as<CollectiveAttrs>();
    const double n = a.ranks, others = (n - 1) / n;
    const auto in = static_cast<double>(program.value(instr.in[0]).bytes()),
               out = static_cast<double>(program.value(instr.out[0]).bytes());
    switch (instr.op) {
      case Op::all_reduce:
        sum += 2 * others * in;
        break;
      case Op::all_gather:
        sum += others * out;
        break;
      case Op::reduce_scatter:
      case Op::all_to_all:
        sum += others * in;
        break;
      case Op::shift_begin:
        sum += in;
        break;
      default:
        ADD_FAILURE() << op_name(instr.op);
    }
  }
  return sum;
}

struct Technique {
  SplitCase run;
  std::function<double(const Formula&)> sent;  ///< the bytes that a rank sends in one micro-batch
};

void PrintTo(const Technique& technique, std::ostream* out) { *out << technique.run.shard.front(); }

// Shoeybi et al. 2019: two sums of activations a block, forward and backward.
double megatron(const Formula& f) { return f.layers * 4 * f.sum(f.act); }
// Korthikanti et al. 2022: each sum is a gather and a reduce-scatter. What is computed by rows has summed
// gradients; that of the embedding's table is computed from gathered rows, which are fewer bytes than the
// table.
double megatron_sp(const Formula& f) {
  return megatron(f) + f.sum(f.norms) + f.gather(f.act) + f.sum(f.table) + f.sum(Formula::kLoss);
}
// The table gives partial sums and the head takes gathered rows, of whose logits all ranks' parts have a
// maximum and a sum.
double vocabulary(const Formula& f) {
  return megatron(f) + f.sum(f.norms) + 4 * f.gather(f.act) + f.gather(2 * f.n * f.tokens);
}
// For the parameters, ranks of cp are ranks of data.
double by_sequences(const Formula& f) {
  return f.sum(f.norms + f.matrices + f.table) + f.gather(f.act) + f.sum(Formula::kLoss);
}
// Jacobs et al. 2023.
double ulysses(const Formula& f) {
  return by_sequences(f) + f.layers * 2 * (f.exchange(f.qkv) + f.exchange(f.act));
}
// Dubey et al. 2024; in a ring (Liu et al. 2023), the same bytes go from rank to rank.
double all_gather(const Formula& f) { return by_sequences(f) + f.layers * 2 * f.gather(f.kv); }

std::vector<Technique> techniques() {
  std::vector<Technique> all;
  const auto add = [&](std::vector<std::string> shard, std::int32_t tp, std::int32_t cp, auto sent) {
    all.push_back({{.family = "llama", .shard = std::move(shard), .tp = tp, .cp = cp}, sent});
  };
  for (const std::int32_t n : {2, 4}) {
    add({"megatron"}, n, 1, megatron);
    add({"megatron+sp"}, n, 1, megatron_sp);
    add({"megatron+sp", "sliced"}, n, 1, megatron_sp);
    add({"megatron+sp", "vocab"}, n, 1, vocabulary);
    add({"ulysses"}, 1, n, ulysses);
    add({"allgather"}, 1, n, all_gather);
    add({"ring"}, 1, n, all_gather);
  }
  add({"ulysses"}, 1, 16, ulysses);  // two ranks have the same keys and values
  return all;
}

/// The bytes that one more block sends.
double sent_by_block(const SplitCase& c) {
  DecoderConfig model = realistic_model();
  double sent[2] = {};
  for (double& bytes : sent) {
    bytes = sent_by(must(test::split_programs(model, c, 0))[ProgramRole::train]);
    ++model.layers;
  }
  return sent[1] - sent[0];
}

// The formulas are for layouts with q ranks along each axis, and d copies: `matrices` are those of one block.
// Norms, which need whole rows, gather them, and their gradients are sums along the axis of columns.

// Xu & You 2021: along tp, columns of what is multiplied; along tp2, matrices and their gradients.
double block_2d(const Formula& f, double q, double d) {
  const Formula g{.n = q};
  const double copies = d == 1 ? 0 : Formula{.n = d}.sum(f.matrices / (q * q) + f.norms);
  return g.gather((4 * f.act + 2 * f.ffn) / (q * d)) + 2 * g.sum(f.act / (q * d)) +
         2 * g.gather(f.matrices / q) + g.sum(f.norms) + copies;
}
// Bian et al. 2021: each linear layer gathers rows along one axis and its matrix along another one, and
// scatters its result along the third one.
double block_3d(const Formula& f, double q) {
  const Formula g{.n = q};
  return g.gather((8 * f.act + 6 * f.ffn + 2 * f.qkv + 2 * f.matrices) / (q * q) + 6 * f.act / q) +
         2 * g.sum(f.norms);
}

TEST(SplitTraffic, OfABlockInSeveralDimensionsIsWhatTheFormulaSays) {
  DecoderConfig model = realistic_model();
  model.layers = 1;
  Formula f = formula_of(model, 1);
  f.norms = 2 * 4.0 * static_cast<double>(model.hidden);
  f.ffn = f.act / static_cast<double>(model.hidden) * static_cast<double>(model.ffn);
  const auto with = [](const char* preset, std::int32_t q, std::int32_t tp3) {
    return SplitCase{.family = "llama", .shard = {preset}, .tp = q, .tp2 = q, .tp3 = tp3};
  };
  EXPECT_EQ(sent_by_block(with("2d", 2, 1)), block_2d(f, 2, 1));
  EXPECT_EQ(sent_by_block(with("2d", 4, 1)), block_2d(f, 4, 1));
  EXPECT_EQ(sent_by_block(with("2.5d", 2, 2)), block_2d(f, 2, 2));
  EXPECT_EQ(sent_by_block(with("3d", 2, 2)), block_3d(f, 2));
}

class SplitTraffics : public ::testing::TestWithParam<Technique> {};

TEST_P(SplitTraffics, IsWhatTheFormulaSays) {
  const SplitCase& c = GetParam().run;
  const DecoderConfig model = realistic_model();
  for (std::int32_t rank = 0; rank < c.ranks(); ++rank) {
    const ProgramSet programs = must(test::split_programs(model, c, rank));
    EXPECT_EQ(sent_by(programs[ProgramRole::train]), GetParam().sent(formula_of(model, c.sharing())))
        << "rank " << rank;
  }
}
TEST_P(SplitTraffics, IsPlanned) {
  const SplitCase& c = GetParam().run;
  const test::TempDir dir;
  for (std::int32_t rank = 0; rank < c.ranks(); ++rank) {
    const auto plan = must(test::plan_split(c, rank, dir.path()));
    const ProgramSet programs = must(test::split_programs(c, rank));
    EXPECT_EQ(static_cast<double>(rank_traffic(*plan, plan->of(ProgramRole::train).uses).shared),
              test::kSplitGradAccum * sent_by(programs[ProgramRole::train]))
        << "rank " << rank;
  }
}
INSTANTIATE_TEST_SUITE_P(Techniques, SplitTraffics, ::testing::ValuesIn(techniques()));

}  // namespace
}  // namespace strata
