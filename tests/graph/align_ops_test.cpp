#include <functional>

#include <gmock/gmock.h>

#include <strata/graph/builder.h>
#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/partition.h>

#include "graph/arena_replay.h"
#include "graph/program_run.h"
#include "support/numeric.h"

// The ops of alignment in programs: their derivatives, and what passes make of programs with several outputs.
namespace strata {
namespace {

using test::ProgramRun;
using test::Values;
using testing::HasSubstr;

constexpr std::int64_t kTokens = 24, kWidth = 6, kVocab = 11;
constexpr std::int32_t kPairs = 3;

struct Recorded {
  explicit Recorded(DType dtype = DType::f32) : b(dtype) {
    tokens = b.input("tokens", {kTokens}, DType::i32);
    table = b.param("table", {kVocab, kWidth}, {});
    b.region("block", true);
    x = b.gelu(b.linear(b.embedding(tokens, table), b.param("w", {kWidth, kWidth}, {})));
    b.region("head", false);
  }
  Value vector(const char* name, std::int64_t n = kTokens) { return b.input(name, {n}, DType::f32); }
  LogProbs log_probs(bool tied, const kernels::LogProbScaling& scaling = {}, bool entropy = false) {
    const Value head = tied ? table : b.param("head", {kVocab, kWidth}, {});
    return b.linear_log_probs(x, head, b.input("targets", {kTokens}, DType::i32), scaling, entropy);
  }
  Value scores() {
    // One after another: values depend on the order, and compilers evaluate arguments in different ones.
    const Value bias = b.param("bias", {1}, {}), weight = b.param("score", {1, kWidth}, {});
    return b.row_scores(x, weight, bias);
  }
  Builder b;
  Value tokens, table, x;
};

Program policy_program(DType dtype = DType::f32, bool tied = false) {
  Recorded r(dtype);
  const LogProbs of = r.log_probs(tied, {.softcap = 3, .temperature = 0.8f}, true);
  const auto [loss, stats] = r.b.policy_loss({.log_probs = of.log_probs,
                                              .old_log_probs = r.vector("old"),
                                              .advantages = r.vector("advantages"),
                                              .weights = r.vector("weights"),
                                              .ref_log_probs = r.vector("ref"),
                                              .divisor = r.vector("divisor", 1)},
                                             {.clip_low = 0.5f, .clip_high = 0.7f, .kl_coef = 0.1f});
  return must(r.b.finish(
      {{"loss", loss}, {"stats", stats}, {"log_probs", of.log_probs}, {"entropies", of.entropies}}));
}
Program value_program(DType dtype = DType::f32) {
  Recorded r(dtype);
  const auto [loss, stats] = r.b.value_loss({.values = r.scores(),
                                             .old_values = r.vector("old"),
                                             .returns = r.vector("advantages"),
                                             .weights = r.vector("weights"),
                                             .divisor = r.vector("divisor", 1)},
                                            {.clip = 0.5f});
  return must(r.b.finish({{"loss", loss}, {"stats", stats}}));
}
Program pair_program(const PairLossAttrs& options, bool mean, bool is_reward) {
  Recorded r;
  const Value of = is_reward ? r.scores() : r.log_probs(false).log_probs;
  const Value sums = r.b.segment_sum(of, r.b.input("segments", {kTokens}, DType::i32), 2 * kPairs, mean);
  const auto [loss, stats] = r.b.pair_loss({.scores = sums,
                                            .ref_scores = is_reward ? Value{} : r.vector("ref", 2 * kPairs),
                                            .weights = r.vector("weights", kPairs),
                                            .margins = is_reward ? r.vector("margins", kPairs) : Value{},
                                            .divisor = r.vector("divisor", 1)},
                                           options);
  return must(r.b.finish({{"loss", loss}, {"stats", stats}, {"scores", sums}}));
}
/// PPO with a value head on the policy's trunk.
Program sum_program() {
  Recorded r;
  const Value weights = r.vector("weights"), divisor = r.vector("divisor", 1), old = r.vector("old"),
              advantages = r.vector("advantages");
  const Value policy =
      r.b.policy_loss({r.log_probs(false).log_probs, old, advantages, weights, {}, divisor}).loss;
  const Value value = r.b.value_loss({r.scores(), {}, advantages, weights, divisor}).loss;
  return must(r.b.finish({{"loss", r.b.add(policy, value)}}));
}

/// Sets all inputs and parameters of every micro-batch.
void fill(ProgramRun& run, const Program& program) {
  std::uint64_t seed = 1;
  for (const ParamInfo& param : program.params)
    run.set(param.name, Values(seed++).floats(param.shape.n_elems(), 0.7));
  for (const ValueId id : program.inputs) {
    const ValueInfo& info = program.value(id);
    const std::string name = info.name.substr(0, info.name.find('#'));
    const std::int64_t n = info.shape.n_elems();
    std::vector<std::int32_t> ids =
        Values(17 + info.name.size()).below(n, name == "segments" ? 2 * kPairs : kVocab);
    for (std::size_t t = 1; t < ids.size() && name != "tokens"; t += 4) ids[t] = -1;
    std::vector<float> values =
        Values(5 + info.name.size()).floats(n, 1.0, name == "old" || name == "ref" ? -2.5 : 0.0);
    if (name == "weights")
      for (std::size_t t = 0; t < values.size(); ++t)
        values[t] = n == kTokens && t % 4 == 1 ? 0.0f : values[t] * values[t] + 0.1f;
    if (name == "divisor") values = {2.0f};
    info.dtype == DType::i32 ? run.set(info.name, ids) : run.set(info.name, values);
  }
}

double loss_with(ProgramRun& run, const std::string& param, const std::vector<float>& values) {
  run.set(param, values);
  run.run();
  return static_cast<double>(run.values("loss").front());
}

/// The gradients against central differences of the forward.
void expect_gradients(const Program& forward) {
  const Program program = must(derive_backward(forward, "loss"));
  ProgramRun backward(program), run(forward);
  fill(backward, program);
  fill(run, forward);
  backward.run();
  run.run();
  EXPECT_EQ(backward.values("loss"), run.values("loss"));
  constexpr float kStep = 1.0f / 256;
  for (const ParamInfo& param : program.params) {
    const std::vector<float> at = run.values(param.name);
    std::vector<double> want;
    for (std::size_t i = 0; i < at.size(); ++i) {
      std::vector<float> up = at, down = at;
      up[i] += kStep;
      down[i] -= kStep;
      const double moved = static_cast<double>(up[i]) - static_cast<double>(down[i]);
      want.push_back((loss_with(run, param.name, up) - loss_with(run, param.name, down)) / moved);
    }
    run.set(param.name, at);
    EXPECT_LE(test::relative_error(backward.gradient(param.name), want), 3e-3) << param.name;
    EXPECT_GT(test::relative_error(want, std::vector<double>(want.size())), 1e-3) << param.name;
  }
}

TEST(AlignOpsTest, GradientsOfAPolicyAreCentralDifferences) {
  for (const bool tied : {false, true}) expect_gradients(policy_program(DType::f32, tied));
}
TEST(AlignOpsTest, GradientsOfAValueModelAreCentralDifferences) { expect_gradients(value_program()); }
TEST(AlignOpsTest, GradientsOfARewardModelAreCentralDifferences) {
  for (const bool mean : {false, true}) expect_gradients(pair_program({}, mean, true));
}
TEST(AlignOpsTest, GradientsOfPreferenceLossesAreCentralDifferences) {
  expect_gradients(pair_program({.beta = 0.5f, .label_smoothing = 0.1f}, false, false));
  expect_gradients(pair_program({.kind = kernels::PairLossKind::ipo, .beta = 0.5f}, true, false));
}
TEST(AlignOpsTest, ALossMayBeASumOfLosses) { expect_gradients(sum_program()); }

TEST(AlignOpsTest, SixteenBitGradientsAreCloseToThoseOfF32) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const auto& make :
         {+[](DType d) { return policy_program(d); }, +[](DType d) { return value_program(d); }}) {
      const Program exact = must(derive_backward(make(DType::f32), "loss")),
                    program = must(derive_backward(make(dtype), "loss"));
      ProgramRun want(exact), got(program);
      fill(want, exact);
      fill(got, program);
      want.run();
      got.run();
      for (const ParamInfo& param : program.params)
        EXPECT_LE(test::relative_error(got.gradient(param.name), want.gradient(param.name)), 0.05)
            << param.name << " in " << to_string(dtype);
    }
}

// Statistics are as much outputs as the loss: they survive in the planned memory, whatever passes do.
TEST(AlignOpsTest, PassesKeepNamedOutputsAndTheirBits) {
  const Program forward = policy_program();
  ProgramRun alone(forward);
  fill(alone, forward);
  alone.run();
  const Program backward = must(derive_backward(forward, "loss"));
  for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full})
    for (const std::int32_t micro_batches : {1, 2}) {
      const Program program = interleave_micro_batches(recompute_regions(backward, mode), micro_batches);
      must(verify(program));
      EXPECT_EQ(test::replay(program), "");
      ProgramRun run(program);
      fill(run, program);
      run.run();
      for (const char* output : {"loss", "stats", "log_probs", "entropies"}) {
        EXPECT_EQ(run.values(output), alone.values(output)) << output;
        EXPECT_EQ(run.values(name_in_micro_batch(output, micro_batches - 1)).size(),
                  alone.values(output).size());
      }
    }
}

TEST(AlignOpsTest, OffloadingKeepsNamedOutputs) {
  for (const Program& forward : {policy_program(), value_program(), pair_program({}, false, false)}) {
    const Program program = offload_activations(
        assign_gemm_workspaces(must(derive_backward(forward, "loss"))), OffloadOptions{.share = 1.0});
    must(verify(program));
    EXPECT_EQ(test::replay(program), "");
    EXPECT_EQ(program.outputs.size(), forward.outputs.size());
  }
}

TEST(AlignOpsTest, InputsNeedNoGradientsAndFrozenHeadsNone) {
  Program forward = policy_program();
  const std::vector<std::string> frozen = {"head"};
  const Program program = must(derive_backward(must(freeze_parameters(forward, frozen)), "loss"));
  std::string ops;
  for (const Instr& instr : program.code)
    if (instr.backward) ops += std::string(op_name(instr.op)) + " ";
  EXPECT_EQ(ops,
            "policy_loss_backward linear_log_probs_backward gelu_backward linear_backward_weight "
            "linear_backward_input embedding_backward ");
  for (const Instr& instr : program.code) {
    if (instr.op != Op::linear_log_probs_backward) continue;
    EXPECT_EQ(program.value(instr.out[1]).shape.n_elems(), 0);
  }
}

TEST(AlignOpsTest, ALossThatDependsOnAnEntropyOrAStatisticIsRefused) {
  Recorded r;
  const LogProbs of = r.log_probs(false, {}, true);
  const Value sums = r.b.segment_sum(of.entropies, r.b.input("segments", {kTokens}, DType::i32), 2 * kPairs);
  const auto [loss, stats] =
      r.b.pair_loss({sums, {}, r.vector("weights", kPairs), {}, r.vector("divisor", 1)});
  const Program program = must(r.b.finish({{"loss", loss}, {"stats", stats}}));
  EXPECT_THAT(
      std::string(derive_backward(program, "loss").status().message()),
      HasSubstr("op linear_log_probs has no derivative of its output head.linear_log_probs.entropies"));
  EXPECT_THAT(std::string(derive_backward(program, "stats").status().message()),
              HasSubstr("op pair_loss has no derivative of its output stats"));
}

TEST(AlignOpsTest, AValueThatIsAddedToItselfIsNoLoss) {
  Recorded r;
  const Value targets = r.b.input("targets", {kTokens}, DType::i32);
  const Value loss = r.b.linear_cross_entropy(r.x, r.table, targets);
  const Program program = must(r.b.finish({{"loss", r.b.add(loss, loss)}}));
  EXPECT_THAT(std::string(derive_backward(program, "loss").status().message()),
              HasSubstr("loss adds a value to itself"));
}

// Each rank computes the log-probabilities and the scores of its rows.
TEST(AlignOpsTest, RowsAreSharedByRanks) {
  Recorded r;
  const Value log_probs = r.log_probs(false).log_probs, weights = r.vector("weights"),
              divisor = r.vector("divisor", 1), old = r.vector("old");
  const Value policy = r.b.policy_loss({log_probs, old, old, weights, {}, divisor}).loss;
  const Value value = r.b.value_loss({r.scores(), {}, old, weights, divisor}).loss;
  const Program whole = must(r.b.finish({{"loss", r.b.add(policy, value)}}));
  std::string axis = "tp";
  const std::vector<ShardAnnotation> rows = {must(parse_annotation("table/embedding 0:tp", axis))};
  const Program part = must(partition(whole, {.name = "tp", .number = 0, .ranks = 2}, rows));
  must(derive_backward(part, "loss"));
  for (const Instr& instr : part.code) {
    if (instr.op != Op::linear_log_probs && instr.op != Op::row_scores) continue;
    EXPECT_EQ(part.value(instr.out[0]).shape.dim(0), kTokens / 2) << op_name(instr.op);
  }
}

// Records with a vector of `n` f32 values, which is too short, for one operand, and returns the error.
std::string refusal(const std::function<void(Recorded&, Value bad, Value good, Value divisor)>& record) {
  Recorded r;
  record(r, r.vector("bad", kTokens - 1), r.vector("good"), r.vector("divisor", 1));
  return std::string(r.b.finish({}).status().message());
}

TEST(AlignOpsTest, ShapesThatDoNotMatchAreRefused) {
  using V = Value;
  EXPECT_THAT(refusal([](Recorded& r, V bad, V, V) { r.b.linear_log_probs(r.x, r.table, bad); }),
              HasSubstr("head.linear_log_probs: needs x [T, K], weight [V, K]"));
  EXPECT_THAT(
      refusal([](Recorded& r, V, V, V) { r.b.linear_log_probs(r.x, r.table, r.tokens, {.temperature = 0}); }),
      HasSubstr("a temperature above 0"));
  EXPECT_THAT(refusal([](Recorded& r, V, V, V) { r.b.row_scores(r.x, r.table); }),
              HasSubstr("weight [1, K]"));
  EXPECT_THAT(refusal([](Recorded& r, V bad, V, V) { r.b.segment_sum(bad, r.tokens, 2); }),
              HasSubstr("segments [T] i32"));
  EXPECT_THAT(refusal([](Recorded& r, V, V good, V) { r.b.segment_sum(good, r.tokens, 0); }),
              HasSubstr("1 segment at least"));
  EXPECT_THAT(refusal([](Recorded& r, V bad, V x, V d) {
                r.b.policy_loss({x, x, bad, x, {}, d});
              }),
              HasSubstr("ref_log_probs [T] or"));
  EXPECT_THAT(refusal([](Recorded& r, V, V x, V d) {
                r.b.policy_loss({x, x, x, x, {}, d}, {.kl_coef = 1});
              }),
              HasSubstr("without a KL penalty"));
  EXPECT_THAT(refusal([](Recorded& r, V, V x, V) {
                r.b.policy_loss({x, x, x, x, {}, {}});
              }),
              HasSubstr("operand 5 is absent"));
  EXPECT_THAT(refusal([](Recorded& r, V, V x, V d) {
                r.b.value_loss({x, {}, x, x, d}, {.clip = 1});
              }),
              HasSubstr("without a clip"));
  EXPECT_THAT(refusal([](Recorded& r, V bad, V x, V d) {
                r.b.pair_loss({x, {}, bad, {}, d});
              }),
              HasSubstr("scores [2 P] f32"));
  EXPECT_EQ(refusal([](Recorded& r, V, V x, V d) { r.b.value_loss({x, {}, x, x, d}); }), "ok");
}

}  // namespace
}  // namespace strata
