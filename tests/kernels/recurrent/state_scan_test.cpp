#include <strata/kernels/recurrent/state_scan.h>

#include <numeric>
#include <string>

#include <gmock/gmock.h>

#include "kernels/recurrent/scan_problem.h"
#include "support/isas.h"

namespace strata::kernels {
namespace {

using test::DeltaProblem;
using test::ScanProblem;
using test::Tensor;

class StateScanTest : public ::testing::TestWithParam<DType> {
 protected:
  static DType dtype() { return GetParam(); }
  static double tolerance() { return dtype() == DType::f32 ? 5e-6 : dtype() == DType::f16 ? 5e-4 : 4e-3; }
  static void expect_reference(ScanProblem& problem) {
    const auto want = problem.wanted();
    const ScanProblem::Results got = problem.run();
    EXPECT_LE(test::relative_error(got.out, want.out), tolerance());
    EXPECT_LE(test::relative_error(got.dxbc, want.dxbc), tolerance());
    EXPECT_LE(test::relative_error(got.dstep, want.dstep), 5e-6);
    EXPECT_LE(test::relative_error(got.dg, want.dg), 5e-6);
    EXPECT_LE(test::relative_error(got.dd, want.dd), 5e-6);
    EXPECT_LE(test::relative_error(got.last, want.states), 5e-6);
  }
  /// The results of problems one after the other; dd is that of none.
  static ScanProblem::Results after(const ScanProblem::Results& a, const ScanProblem::Results& b) {
    return {test::joined({a.out, b.out}),
            test::joined({a.dxbc, b.dxbc}),
            test::joined({a.dstep, b.dstep}),
            test::joined({a.dg, b.dg}),
            {},
            test::joined({a.last, b.last})};
  }
};

TEST_P(StateScanTest, FollowsTheRecurrenceInF64) {
  for (const std::int64_t rows : {1, 2, 5, 63, 64, 65, 130, 200}) {
    SCOPED_TRACE(rows);
    ScanProblem problem(rows, dtype());
    expect_reference(problem);
  }
}

TEST_P(StateScanTest, HeadsOfOtherSizesFollowIt) {
  const ScanHeads shapes[] = {{1, 1, 1, 1},  {1, 3, 5, 17},   {2, 2, 16, 16}, {1, 8, 128, 64},
                              {3, 6, 8, 33}, {1, 2, 256, 64}, {5, 25, 7, 3},  {2, 18, 16, 8}};
  for (const ScanHeads& heads : shapes) {
    SCOPED_TRACE(std::to_string(heads.state_dim) + " " + std::to_string(heads.head_dim));
    ScanProblem problem(150, dtype(), heads);
    expect_reference(problem);
  }
}

TEST_P(StateScanTest, GatesMayBeAtTheirLimits) {
  for (const float decay : {0.0f, -100.0f, -1e-7f})
    for (const float step : {0.0f, 10.0f}) {
      SCOPED_TRACE(std::to_string(decay) + " " + std::to_string(step));
      ScanProblem problem(140, dtype());
      std::vector<float> g = problem.g.values(), s = problem.step.values();
      for (std::size_t i = 0; i < g.size(); i += 5) g[i] = decay;
      for (std::size_t i = 0; i < s.size(); i += 3) s[i] = step;
      problem.g = Tensor({problem.rows, problem.heads.heads}, g);
      problem.step = Tensor({problem.rows, problem.heads.heads}, s);
      expect_reference(problem);
    }
}

TEST_P(StateScanTest, PackedDocumentsFollowIt) {
  ScanProblem problem(200, dtype());
  problem.pack({1, 50, 64, 130});
  expect_reference(problem);
}

TEST_P(StateScanTest, APackedDocumentHasTheBitsThatItHasAlone) {
  const std::vector<std::int64_t> packings[] = {{1, 200},
                                                {50, 200},
                                                {63, 200},
                                                {64, 200},
                                                {65, 200},
                                                {70, 71, 130, 200},
                                                {10, 64, 128, 199, 200},
                                                {1, 2, 3, 100, 200}};
  for (const std::vector<std::int64_t>& ends : packings) {
    SCOPED_TRACE(ends.front());
    ScanProblem packed(200, dtype());
    packed.pack({ends.begin(), ends.end() - 1});
    const ScanProblem::Results got = packed.run();
    ScanProblem::Results apart;
    std::int64_t first = 0;
    for (const std::int64_t end : ends) {
      apart.last.clear();  // only the last document's is the sequence's
      apart = after(apart, packed.cut(first, end - first).run());
      first = end;
    }
    EXPECT_EQ(test::differing_bits(got.of_rows(), apart.of_rows()), 0u);
  }
}

TEST_P(StateScanTest, SequencesHaveTheBitsThatTheyHaveAlone) {
  ScanProblem batch(3 * 90, dtype(), ScanProblem::kHeads, 3);
  const ScanProblem::Results got = batch.run();
  ScanProblem::Results apart;
  for (std::int64_t i = 0; i < 3; ++i) apart = after(apart, batch.cut(90 * i, 90).run());
  EXPECT_EQ(test::differing_bits(got.of_rows(), apart.of_rows()), 0u);
}

TEST_P(StateScanTest, ARowDoesNotDependOnLaterOnes) {
  ScanProblem whole(140, dtype());
  const std::vector<float> all = whole.run().out;
  for (const std::int64_t rows : {1, 2, 3, 17, 64, 65, 70, 127, 139}) {
    const std::vector<float> part = whole.cut(0, rows).run().out;
    EXPECT_EQ(
        test::differing_bits(part, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(part.size())}), 0u)
        << rows;
  }
}

TEST_P(StateScanTest, BitsDoNotDependOnThreadsOrTheInstructionSet) {
  ScanProblem problem(150, dtype());
  problem.pack({70, 71});
  const std::vector<float> want = problem.run(1).all();
  EXPECT_EQ(test::differing_bits(problem.run(2).all(), want), 0u);
  for (const simd::CpuIsa name : test::supported_isas()) {
    const test::IsaScope isa(name);
    EXPECT_EQ(test::differing_bits(problem.run(3).all(), want), 0u) << to_string(name);
  }
}

TEST_P(StateScanTest, AStateContinuesASequence) {
  ScanProblem whole(200, dtype());
  const ScanProblem::Results want = whole.run();
  ScanProblem first = whole.cut(0, 128), second = whole.cut(128, 72);
  const Shape states = {1, 12, 24, 20};
  Tensor state(states, first.run().last), out = Tensor::unwritten(second.dout_shape(), dtype()),
                                          last = Tensor::unwritten(states);
  test::Workspace space(state_scan_forward_workspace_bytes(72, second.heads));
  StateScanForwardArgs args = second.forward_args(out, space);
  args.initial = state.view();
  args.last = last.view();
  state_scan_forward_host(args, *test::pool());
  EXPECT_EQ(test::differing_bits(last.values(), want.last), 0u);
  const Tensor all(whole.dout_shape(), want.out, dtype());
  EXPECT_EQ(test::differing_bits(out.values(), DeltaProblem::rows_of(all, 128, 72).values()), 0u);
}

/// Feeds rows of sequences to the cached scan; returns the rows of out in their order.
class CachedScan {
 public:
  CachedScan(ScanProblem& of, std::int64_t sequences)
      : of_(of), state_(Tensor::unwritten({sequences, of.heads.blocks(), scan_state_elems(of.heads)})) {}
  std::vector<float> operator()(std::int64_t first, std::int64_t n, std::int32_t slot) {
    std::vector<std::int32_t> positions(static_cast<std::size_t>(n)),
        slots(static_cast<std::size_t>(n), slot);
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(first));
    return run(of_.cut(first, n), positions, slots);
  }
  std::vector<float> run(ScanProblem part, std::vector<std::int32_t> positions,
                         std::vector<std::int32_t> slots) {
    part.heads.seq = 0;
    Tensor out = Tensor::unwritten(part.dout_shape(), part.xbc.dtype());
    test::Workspace space(cached_state_scan_workspace_bytes(part.heads));
    cached_state_scan_host(
        {part.xbc.view(), part.step.view(), part.g.view(), part.d.view(), test::view(positions),
         test::view(slots), state_.view(), out.view(), part.heads, space.view()},
        *test::pool());
    return out.values();
  }

 private:
  ScanProblem& of_;
  Tensor state_;
};

TEST_P(StateScanTest, CachedRowsHaveTheBitsOfTheForwardInAnyPieces) {
  ScanProblem problem(200, dtype());
  const std::vector<float> want = problem.run().out;
  const std::vector<std::int64_t> piece_lists[] = {
      std::vector<std::int64_t>(200, 1), {200}, {64, 64, 72}, {50, 14, 1, 135}, {63, 2, 100, 30, 5}};
  CachedScan cached(problem, 2);
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

TEST_P(StateScanTest, CachedSequencesDoNotDependOnEachOther) {
  ScanProblem problem(9, dtype());
  CachedScan cached(problem, 3);
  const std::vector<float> alone = problem.run().out;
  const std::int64_t width = problem.heads.out_width();
  // Sequences 2 and 0 in turns, and a row that is none.
  std::vector<std::int32_t> positions, slots;
  std::vector<float> xbc, step, g;
  const auto add = [&](std::int64_t t, std::int32_t slot) {
    const auto row = [&](const Tensor& of) { return DeltaProblem::rows_of(of, t, 1).values(); };
    xbc = test::joined({xbc, row(problem.xbc)});
    step = test::joined({step, row(problem.step)});
    g = test::joined({g, row(problem.g)});
    positions.push_back(static_cast<std::int32_t>(t));
    slots.push_back(slot);
  };
  for (std::int64_t t = 0; t < 9; ++t) {
    add(t, 2);
    add(t, 0);
  }
  add(0, -1);
  ScanProblem mixed(19, dtype());
  mixed.xbc = Tensor({19, problem.heads.xbc_width()}, xbc, dtype());
  mixed.step = Tensor({19, 12}, step);
  mixed.g = Tensor({19, 12}, g);
  const std::vector<float> got = cached.run(mixed, positions, slots);
  for (std::int64_t t = 0; t < 19; ++t)
    for (std::int64_t c = 0; c < width; ++c)
      ASSERT_EQ(got[static_cast<std::size_t>(t * width + c)],
                t == 18 ? 0.0f : alone[static_cast<std::size_t>(t / 2 * width + c)])
          << t;
}

INSTANTIATE_TEST_SUITE_P(Dtypes, StateScanTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(StateScanCheckTest, WhatDoesNotFitIsRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  ScanProblem problem(12, DType::f32);
  Tensor out = Tensor::unwritten(problem.dout_shape());
  test::Workspace space(state_scan_forward_workspace_bytes(12, problem.heads));
  const auto message = [&](const auto& change) {
    StateScanForwardArgs args = problem.forward_args(out, space);
    change(args);
    return std::string(state_scan_forward_async(backend, stream, args).message());
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(message([](StateScanForwardArgs&) {}), "ok");
  EXPECT_THAT(message([](StateScanForwardArgs& a) { a.heads.heads = 13; }),
              HasSubstr("13 heads of 20 and 2 groups of states of 24"));
  EXPECT_THAT(message([](StateScanForwardArgs& a) { a.heads.groups = 0; }),
              HasSubstr("12 heads of 20 and 0 groups of states of 24"));
  EXPECT_THAT(message([](StateScanForwardArgs& a) { a.heads.seq = 5; }),
              HasSubstr("12 rows in sequences of 5"));
  EXPECT_THAT(message([](StateScanForwardArgs& a) { a.g = a.xbc; }),
              HasSubstr("g is f32 [12, 336]; it must be f32, 12 rows of 12"));
  EXPECT_THAT(message([](StateScanForwardArgs& a) { a.d = a.g; }),
              HasSubstr("d is f32 [12, 12]; it must be f32 [12]"));
  EXPECT_THAT(message([](StateScanForwardArgs& a) { a.heads.state_dim = 20; }),
              HasSubstr("xbc is f32 [12, 336]; it must be f32, 12 rows of 320"));
  EXPECT_THAT(message([](StateScanForwardArgs& a) { a.workspace.bytes = 8; }),
              HasSubstr("workspace has 8 bytes; it needs "));
}

}  // namespace
}  // namespace strata::kernels
