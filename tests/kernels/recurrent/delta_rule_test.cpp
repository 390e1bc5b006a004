#include <strata/kernels/recurrent/delta_rule.h>

#include <numeric>
#include <string>

#include <gmock/gmock.h>

#include "kernels/recurrent/delta_problem.h"
#include "support/isas.h"

namespace strata::kernels {
namespace {

using test::DeltaProblem;
using test::Tensor;

class DeltaRuleTest : public ::testing::TestWithParam<DType> {
 protected:
  static DType dtype() { return GetParam(); }
  static double tolerance() { return dtype() == DType::f32 ? 5e-6 : dtype() == DType::f16 ? 5e-4 : 4e-3; }
  static void expect_reference(DeltaProblem& problem, double limit = tolerance()) {
    const auto want = problem.wanted();
    const DeltaProblem::Results got = problem.run();
    EXPECT_LE(test::relative_error(got.out, want.out), limit);
    EXPECT_LE(test::relative_error(got.dqkv, want.dqkv), limit);
    EXPECT_LE(test::relative_error(got.dg, want.dg), 5e-6);
    EXPECT_LE(test::relative_error(got.dbeta, want.dbeta), 5e-6);
    EXPECT_LE(test::relative_error(got.last, want.states), 5e-6);
  }
};

TEST_P(DeltaRuleTest, FollowsTheRecurrenceInF64) {
  for (const std::int64_t rows : {1, 2, 5, 63, 64, 65, 130, 200}) {
    SCOPED_TRACE(rows);
    DeltaProblem problem(rows, dtype());
    expect_reference(problem);
  }
}

TEST_P(DeltaRuleTest, HeadsOfOtherSizesFollowIt) {
  const DeltaHeads shapes[] = {{1, 1, 1, 1}, {1, 3, 5, 17}, {2, 2, 16, 16}, {1, 2, 128, 128}, {3, 6, 8, 33}};
  for (const DeltaHeads& heads : shapes) {
    SCOPED_TRACE(std::to_string(heads.key_dim) + " " + std::to_string(heads.value_dim));
    DeltaProblem problem(150, dtype(), heads);
    expect_reference(problem);
  }
}

TEST_P(DeltaRuleTest, GatesMayBeAtTheirLimits) {
  for (const float decay : {0.0f, -100.0f, -1e-7f})
    for (const float beta : {0.0f, 1.0f}) {
      SCOPED_TRACE(std::to_string(decay) + " " + std::to_string(beta));
      DeltaProblem problem(140, dtype());
      const std::int64_t n = problem.rows * problem.heads.value_heads;
      std::vector<float> g = problem.g.values(), b = problem.beta.values();
      for (std::int64_t i = 0; i < n; i += 5) g[static_cast<std::size_t>(i)] = decay;
      for (std::int64_t i = 0; i < n; i += 3) b[static_cast<std::size_t>(i)] = beta;
      problem.g = Tensor({problem.rows, problem.heads.value_heads}, g);
      problem.beta = Tensor({problem.rows, problem.heads.value_heads}, b);
      expect_reference(problem);
    }
}

TEST_P(DeltaRuleTest, DecaysThatAreAllFastLeaveARowToItself) {
  DeltaProblem problem(70, dtype());
  problem.g = Tensor({70, problem.heads.value_heads},
                     std::vector<float>(static_cast<std::size_t>(70 * problem.heads.value_heads), -100.0f));
  const auto want = problem.wanted();
  const DeltaProblem::Results got = problem.run();
  EXPECT_LE(test::relative_error(got.out, want.out), tolerance());
  EXPECT_LE(test::relative_error(got.dqkv, want.dqkv), tolerance());
  for (const float dg : got.dg) EXPECT_LE(std::abs(dg), 1e-30f);
}

TEST_P(DeltaRuleTest, PackedDocumentsFollowIt) {
  DeltaProblem problem(200, dtype());
  problem.pack({1, 50, 64, 130});
  expect_reference(problem);
}

std::vector<std::int64_t> with_end(std::vector<std::int64_t> ends) {
  ends.push_back(200);
  return ends;
}

TEST_P(DeltaRuleTest, APackedDocumentHasTheBitsThatItHasAlone) {
  const std::vector<std::int64_t> packings[] = {
      {1}, {50}, {63}, {64}, {65}, {70, 71, 130}, {10, 64, 128, 199}, {1, 2, 3, 100}};
  for (const std::vector<std::int64_t>& ends : packings) {
    SCOPED_TRACE(ends.front());
    DeltaProblem packed(200, dtype());
    packed.pack(ends);
    const DeltaProblem::Results got = packed.run();
    DeltaProblem::Results apart;
    std::int64_t first = 0;
    for (const std::int64_t end : with_end(ends)) {
      const DeltaProblem::Results part = packed.cut(first, end - first).run();
      apart = {test::joined({apart.out, part.out}), test::joined({apart.dqkv, part.dqkv}),
               test::joined({apart.dg, part.dg}), test::joined({apart.dbeta, part.dbeta}), part.last};
      first = end;
    }
    EXPECT_EQ(test::differing_bits(got.all(), apart.all()), 0u);
  }
}

TEST_P(DeltaRuleTest, SequencesHaveTheBitsThatTheyHaveAlone) {
  DeltaProblem batch(3 * 90, dtype(), DeltaProblem::kHeads, 3);
  const DeltaProblem::Results got = batch.run();
  DeltaProblem::Results apart;
  for (std::int64_t i = 0; i < 3; ++i) {
    const DeltaProblem::Results part = batch.cut(90 * i, 90).run();
    apart = {test::joined({apart.out, part.out}), test::joined({apart.dqkv, part.dqkv}),
             test::joined({apart.dg, part.dg}), test::joined({apart.dbeta, part.dbeta}),
             test::joined({apart.last, part.last})};
  }
  EXPECT_EQ(test::differing_bits(got.all(), apart.all()), 0u);
}

TEST_P(DeltaRuleTest, ARowDoesNotDependOnLaterOnes) {
  DeltaProblem whole(140, dtype());
  const std::vector<float> all = whole.run().out;
  for (const std::int64_t rows : {1, 2, 3, 17, 64, 65, 70, 127, 139}) {
    const std::vector<float> part = whole.cut(0, rows).run().out;
    EXPECT_EQ(
        test::differing_bits(part, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(part.size())}), 0u)
        << rows;
  }
}

TEST_P(DeltaRuleTest, BitsDoNotDependOnThreadsOrTheInstructionSet) {
  DeltaProblem problem(150, dtype());
  problem.pack({70, 71});
  const std::vector<float> want = problem.run(1).all();
  EXPECT_EQ(test::differing_bits(problem.run(2).all(), want), 0u);
  for (const simd::CpuIsa name : test::supported_isas()) {
    const test::IsaScope isa(name);
    EXPECT_EQ(test::differing_bits(problem.run(3).all(), want), 0u) << to_string(name);
  }
}

TEST_P(DeltaRuleTest, AStateContinuesASequence) {
  DeltaProblem whole(200, dtype());
  const DeltaProblem::Results want = whole.run();
  DeltaProblem first = whole.cut(0, 128), second = whole.cut(128, 72);
  Tensor state({1, 4, 24, 40}, first.run().last), out = Tensor::unwritten(second.dout_shape(), dtype()),
                                                  last = Tensor::unwritten({1, 4, 24, 40});
  test::Workspace space(delta_rule_forward_workspace_bytes(72, second.heads));
  DeltaRuleForwardArgs args = second.forward_args(out, space);
  args.initial = state.view();
  args.last = last.view();
  delta_rule_forward_host(args, *test::pool());
  EXPECT_EQ(test::differing_bits(last.values(), want.last), 0u);
  EXPECT_EQ(test::differing_bits(
                out.values(),
                DeltaProblem::rows_of(Tensor(whole.dout_shape(), want.out, dtype()), 128, 72).values()),
            0u);
}

/// Feeds rows of sequences to the cached rule; returns the rows of out in their order.
class CachedRun {
 public:
  CachedRun(DeltaProblem& of, std::int64_t sequences)
      : of_(of), state_(Tensor::unwritten({sequences, of.heads.key_heads, delta_state_elems(of.heads)})) {}
  std::vector<float> operator()(std::int64_t first, std::int64_t n, std::int32_t slot) {
    std::vector<std::int32_t> positions(static_cast<std::size_t>(n)),
        slots(static_cast<std::size_t>(n), slot);
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(first));
    return run(of_.cut(first, n), positions, slots);
  }
  std::vector<float> run(DeltaProblem part, std::vector<std::int32_t> positions,
                         std::vector<std::int32_t> slots) {
    part.heads.seq = 0;
    Tensor out = Tensor::unwritten(part.dout_shape(), part.qkv.dtype());
    test::Workspace space(cached_delta_rule_workspace_bytes(part.heads));
    cached_delta_rule_host({part.qkv.view(), part.g.view(), part.beta.view(), test::view(positions),
                            test::view(slots), state_.view(), out.view(), part.heads, space.view()},
                           *test::pool());
    return out.values();
  }

 private:
  DeltaProblem& of_;
  Tensor state_;
};

TEST_P(DeltaRuleTest, CachedRowsHaveTheBitsOfTheForwardInAnyPieces) {
  DeltaProblem problem(200, dtype());
  const std::vector<float> want = problem.run().out;
  const std::vector<std::int64_t> piece_lists[] = {
      std::vector<std::int64_t>(200, 1), {200}, {64, 64, 72}, {50, 14, 1, 135}, {63, 2, 100, 30, 5}};
  CachedRun cached(problem, 2);
  for (const std::vector<std::int64_t>& pieces : piece_lists) {
    std::vector<float> got;
    std::int64_t first = 0;
    for (const std::int64_t n : pieces) {
      got = test::joined({got, cached(first, n, 1)});
      first += n;
    }
    EXPECT_EQ(test::differing_bits(got, want), 0u) << pieces.front();
  }
}

TEST_P(DeltaRuleTest, CachedSequencesDoNotDependOnEachOther) {
  DeltaProblem problem(9, dtype());
  CachedRun cached(problem, 3);
  const std::vector<float> alone = problem.run().out;
  const std::int64_t width = problem.heads.out_width();
  // Sequences 2 and 0 in turns, and a row that is none.
  std::vector<std::int32_t> positions, slots;
  std::vector<float> qkv, g, beta;
  const auto add = [&](std::int64_t t, std::int32_t slot) {
    const auto rows = [&](const Tensor& of) { return DeltaProblem::rows_of(of, t, 1).values(); };
    qkv = test::joined({qkv, rows(problem.qkv)});
    g = test::joined({g, rows(problem.g)});
    beta = test::joined({beta, rows(problem.beta)});
    positions.push_back(static_cast<std::int32_t>(t));
    slots.push_back(slot);
  };
  for (std::int64_t t = 0; t < 9; ++t) {
    add(t, 2);
    add(t, 0);
  }
  add(0, -1);
  DeltaProblem mixed(19, dtype());
  mixed.qkv = Tensor({19, problem.heads.qkv_width()}, qkv, dtype());
  mixed.g = Tensor({19, 4}, g);
  mixed.beta = Tensor({19, 4}, beta);
  const std::vector<float> got = cached.run(mixed, positions, slots);
  for (std::int64_t t = 0; t < 19; ++t)
    for (std::int64_t c = 0; c < width; ++c)
      ASSERT_EQ(got[static_cast<std::size_t>(t * width + c)],
                t == 18 ? 0.0f : alone[static_cast<std::size_t>(t / 2 * width + c)])
          << t;
}

INSTANTIATE_TEST_SUITE_P(Dtypes, DeltaRuleTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(DeltaRuleCheckTest, WhatDoesNotFitIsRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  DeltaProblem problem(12, DType::f32);
  Tensor out = Tensor::unwritten(problem.dout_shape());
  test::Workspace space(delta_rule_forward_workspace_bytes(12, problem.heads));
  const auto message = [&](const auto& change) {
    DeltaRuleForwardArgs args = problem.forward_args(out, space);
    change(args);
    return std::string(delta_rule_forward_async(backend, stream, args).message());
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(message([](DeltaRuleForwardArgs&) {}), "ok");
  EXPECT_THAT(message([](DeltaRuleForwardArgs& a) { a.heads.value_heads = 3; }),
              HasSubstr("3 value heads of 40 and 2 key heads of 24"));
  EXPECT_THAT(message([](DeltaRuleForwardArgs& a) { a.heads.key_heads = 0; }),
              HasSubstr("4 value heads of 40 and 0 key heads of 24"));
  EXPECT_THAT(message([](DeltaRuleForwardArgs& a) { a.heads.seq = 5; }),
              HasSubstr("12 rows in sequences of 5"));
  EXPECT_THAT(message([](DeltaRuleForwardArgs& a) { a.g = a.qkv; }),
              HasSubstr("g is f32 [12, 256]; it must be f32, 12 rows of 4"));
  EXPECT_THAT(message([](DeltaRuleForwardArgs& a) { a.heads.key_dim = 20; }),
              HasSubstr("qkv is f32 [12, 256]; it must be f32, 12 rows of 240"));
  EXPECT_THAT(message([](DeltaRuleForwardArgs& a) { a.workspace.bytes = 8; }),
              HasSubstr("workspace has 8 bytes; it needs "));
}

}  // namespace
}  // namespace strata::kernels
