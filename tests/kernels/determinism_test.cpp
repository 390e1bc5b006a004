#include <strata/kernels/align/linear_log_probs.h>
#include <strata/kernels/attention.h>
#include <strata/kernels/cross_entropy.h>
#include <strata/kernels/dora.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/embedding.h>
#include <strata/kernels/experts/expert_linear.h>
#include <strata/kernels/experts/gate.h>
#include <strata/kernels/experts/router.h>
#include <strata/kernels/experts/rows.h>
#include <strata/kernels/layernorm.h>
#include <strata/kernels/linear.h>
#include <strata/kernels/linear_cross_entropy.h>
#include <strata/kernels/rmsnorm.h>
#include <strata/kernels/rope.h>
#include <strata/kernels/subspace.h>

#include "support/isas.h"
#include "support/op_test.h"

// Contract C1 for every op: the bits do not depend on the number of threads or on the instruction set of the
// SIMD kernels.
namespace strata::kernels {
namespace {

using test::joined;
using test::Tensor;
using test::Values;
using test::Workspace;

struct ThreadCase {
  const char* name;
  std::vector<float> (*run)(ThreadPool& pool);
};
void PrintTo(const ThreadCase& c, std::ostream* out) { *out << c.name; }

std::vector<float> embedding_case(ThreadPool& pool) {
  auto ids = Values(1).below(600, 48);
  Tensor table({50, 97}, Values(2).floats(50 * 97)), x = Tensor::unwritten({600, 97});
  embedding_forward_host({test::view(ids), table.view(), x.view(), 2}, pool);
  Tensor dtable = table;
  Workspace workspace(embedding_backward_workspace_bytes(600, 50));
  embedding_backward_host({test::view(ids), x.view(), dtable.view(), 2, true, workspace.view()}, pool);
  return joined({x.values(), dtable.values()});
}

std::vector<float> rmsnorm_case(ThreadPool& pool) {
  Tensor x({700, 99}, Values(1).floats(700 * 99)), w({99}, Values(2).floats(99));
  Tensor y = Tensor::unwritten({700, 99}), rstd = Tensor::unwritten({700});
  rmsnorm_forward_host({x.view(), w.view(), y.view(), rstd.view(), 1e-6f}, pool);
  Tensor dx = x, dw = w;
  Workspace workspace(rmsnorm_backward_workspace_bytes(700, 99));
  rmsnorm_backward_host(
      {x.view(), w.view(), rstd.view(), y.view(), dx.view(), dw.view(), true, workspace.view(), x.view()},
      pool);
  return joined({y.values(), rstd.values(), dx.values(), dw.values()});
}

std::vector<float> heads_case(ThreadPool& pool) {  // the ops on queries and keys before attention
  const std::int64_t rows = 600, d = 18, width = 7 * d;
  Tensor qkv({rows, width}, Values(1).floats(rows * width)), q({d}, Values(2).floats(d)),
      k({d}, Values(3).floats(d));
  Tensor y = Tensor::unwritten({rows, width}), rstd = Tensor::unwritten({rows * 5});
  qk_norm_forward_host({qkv.view(), q.view(), k.view(), y.view(), rstd.view(), 3, 2, 1e-6f}, pool);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(rows));
  positions_host({{}, test::view(positions), 100}, pool);
  Tensor table = Tensor::unwritten({100, 16}), rotated = Tensor::unwritten({rows, width}), other = rotated;
  rope_table_host({table.view(), {}}, pool);
  rope_host({y.view(), test::view(positions), table.view(), rotated.view(), 5, d, false, false}, pool);
  rope_host({y.view(), test::view(positions), table.view(), other.view(), 5, d, true, true}, pool);
  Tensor dx = Tensor::unwritten({rows, width}), dq = q, dk = k;
  Workspace workspace(qk_norm_backward_workspace_bytes(rows, d, d));
  qk_norm_backward_host({qkv.view(), q.view(), k.view(), rstd.view(), rotated.view(), dx.view(), dq.view(),
                         dk.view(), 3, 2, true, false, workspace.view()},
                        pool);
  return joined(
      {y.values(), table.values(), rotated.values(), other.values(), dx.values(), dq.values(), dk.values()});
}

std::vector<float> layernorm_case(ThreadPool& pool) {
  Tensor x({700, 99}, Values(1).floats(700 * 99)), w({99}, Values(2).floats(99)),
      b({99}, Values(3).floats(99));
  Tensor y = Tensor::unwritten({700, 99}), mean = Tensor::unwritten({700}), rstd = mean;
  layernorm_forward_host({x.view(), w.view(), b.view(), y.view(), mean.view(), rstd.view()}, pool);
  Tensor dx = x, dw = w, db = b;
  Workspace workspace(layernorm_backward_workspace_bytes(700, 99));
  layernorm_backward_host({x.view(), w.view(), mean.view(), rstd.view(), y.view(), dx.view(), dw.view(),
                           db.view(), false, true, workspace.view(), x.view()},
                          pool);
  return joined({y.values(), mean.values(), rstd.values(), dx.values(), dw.values(), db.values()});
}

std::vector<float> linear_case(ThreadPool& pool) {
  Tensor x({300, 130}, Values(1).floats(300 * 130)), w({520, 130}, Values(2).floats(520 * 130)),
      b({520}, Values(3).floats(520));
  Tensor y = Tensor::unwritten({300, 520}), dx = Tensor::unwritten({300, 130}), dw = w, db = b;
  linear_forward_host({x.view(), w.view(), b.view(), y.view()}, pool);
  linear_backward_input_host({y.view(), w.view(), dx.view()}, pool);
  linear_backward_weight_host({y.view(), x.view(), dw.view(), true}, pool);
  Workspace workspace(linear_backward_bias_workspace_bytes(300, 520));
  linear_backward_bias_host({y.view(), db.view(), true, workspace.view()}, pool);
  return joined({y.values(), dx.values(), dw.values(), db.values()});
}

std::vector<float> elementwise_case(ThreadPool& pool) {
  Tensor x({50001}, Values(1).floats(50001, 20.0)), dy({50001}, Values(2).floats(50001));
  Tensor y = Tensor::unwritten({50001}), dx = y, sum = y;
  gelu_forward_host({x.view(), y.view()}, pool);
  gelu_backward_host({x.view(), dy.view(), dx.view()}, pool);
  add_host({y.view(), dx.view(), sum.view()}, pool);
  Tensor gates({500, 200}, Values(3).floats(100000, 20.0)), gated = Tensor::unwritten({500, 100});
  swiglu_forward_host({gates.view(), gated.view()}, pool);
  Tensor dgates = Tensor::unwritten({500, 200}), positive = x, dpositive = dy;
  swiglu_backward_host({gates.view(), gated.view(), dgates.view()}, pool);
  relu_forward_host({x.view(), positive.view()}, pool);
  relu_backward_host({x.view(), dy.view(), dpositive.view()}, pool);
  return joined({y.values(), dx.values(), sum.values(), gated.values(), dgates.values(), positive.values(),
                 dpositive.values()});
}

std::vector<float> cross_entropy_case(ThreadPool& pool) {
  auto targets = Values(1).below(90, 5003);
  Tensor logits({90, 5003}, Values(2).floats(90 * 5003, 30.0)), losses = Tensor::unwritten({90}),
                                                                lse = losses;
  Tensor mean = Tensor::unwritten({1});
  cross_entropy_forward_host({logits.view(), test::view(targets), losses.view(), lse.view(), mean.view()},
                             pool);
  cross_entropy_backward_host({logits.view(), test::view(targets), lse.view(), logits.view(), 1.0f, true},
                              pool);
  return joined({losses.values(), lse.values(), mean.values(), logits.values()});
}

std::vector<float> log_probs_case(ThreadPool& pool) {
  auto targets = Values(1).below(90, 5003);
  Tensor x({90, 30}, Values(2).floats(90 * 30)), w({5003, 30}, Values(3).floats(5003 * 30));
  Tensor log_probs = Tensor::unwritten({90}), lse = log_probs, entropies = log_probs;
  Tensor dx = x, dw = w;
  Workspace workspace(linear_cross_entropy_workspace_bytes(90, 5003, DType::f32));
  linear_log_probs_host({x.view(),
                         w.view(),
                         test::view(targets),
                         log_probs.view(),
                         lse.view(),
                         entropies.view(),
                         workspace.view(),
                         {},
                         {4, 0.8f}},
                        pool);
  linear_log_probs_backward_host({x.view(),
                                  w.view(),
                                  test::view(targets),
                                  lse.view(),
                                  log_probs.view(),
                                  dx.view(),
                                  dw.view(),
                                  false,
                                  workspace.view(),
                                  {},
                                  {4, 0.8f}},
                                 pool);
  return joined({log_probs.values(), lse.values(), entropies.values(), dx.values(), dw.values()});
}

std::vector<float> attention_case(ThreadPool& pool) {
  const std::int64_t tokens = 3 * 140, d = 12, width = 8 * d;
  const AttentionHeads heads{4, 2, 140, true, true};
  std::vector<std::int32_t> starts(static_cast<std::size_t>(tokens));
  for (std::size_t t = 0; t < starts.size(); ++t) starts[t] = static_cast<std::int32_t>(t % 140 / 50 * 50);
  Tensor qkv({tokens, width}, Values(1).floats(tokens * width, 3.0)),
      out = Tensor::unwritten({tokens, 4 * d});
  Tensor lse = Tensor::unwritten({3, 4, 140}), dqkv = Tensor::unwritten({tokens, width});
  Workspace forward(attention_forward_workspace_bytes(tokens, heads)),
      backward(attention_backward_workspace_bytes(tokens, heads));
  attention_forward_host({qkv.view(), out.view(), lse.view(), test::view(starts), heads, forward.view()},
                         pool);
  attention_backward_host({qkv.view(), out.view(), lse.view(), out.view(), test::view(starts), dqkv.view(),
                           heads, backward.view()},
                          pool);
  return joined({out.values(), lse.values(), dqkv.values()});
}

std::vector<float> dora_case(ThreadPool& pool) {
  const LoraParts parts = {{{{5, 90, 3}, {99, 30, 5}}}, 2};
  const std::int64_t rows = 131, columns = 1100, tokens = 600;
  Tensor w({rows, columns}, Values(1).floats(rows * columns)), a({8, columns}, Values(2).floats(8 * columns)),
      b({420}, Values(3).floats(420)), norm = Tensor::unwritten({120});
  Workspace space(dora_norm_workspace_bytes(parts, columns, {}, DType::f32));
  dora_norm_host({w.view(), a.view(), b.view(), norm.view(), space.view(), parts, 0.5f}, pool);
  Tensor x({tokens, rows}, Values(4).floats(tokens * rows)), bias({rows}, Values(5).floats(rows)),
      y = Tensor::unwritten({tokens, rows}), dm = Tensor::unwritten({120});
  scale_columns_host({x.view(), norm.view(), norm.view(), bias.view(), y.view(), parts}, pool);
  Workspace sums(scale_columns_backward_workspace_bytes(tokens, 120));
  scale_columns_backward_weight_host({x.view(), y.view(), norm.view(), dm.view(), sums.view(), parts}, pool);
  std::vector<float> norms(static_cast<std::size_t>(rows));
  row_norms(w.values(), columns, DType::bf16, norms, pool);
  return joined({norm.values(), y.values(), dm.values(), norms});
}

std::vector<float> subspace_case(ThreadPool& pool) {
  const LoraParts parts = {{{{5, 90, 9}, {99, 60, 5}}}, 2};
  const std::int64_t rows = 160, columns = 300, elems = 90 * 9 + 60 * 5;
  const auto left = SubspaceSide::left;
  Tensor g({rows, columns}, Values(1).floats(rows * columns), DType::bf16),
      previous({elems}, Values(2).floats(elems)),
      basis = Tensor::unwritten({elems}), energy = Tensor::unwritten({2}),
      r({14, columns}, Values(3).floats(14 * columns)), rho = Tensor::unwritten({1});
  Workspace space(find_basis_workspace_bytes(parts, columns, left, DType::bf16)),
      sums(gradient_outside_workspace_bytes(parts, columns, left));
  find_basis_host({g.view(), previous.view(), basis.view(), energy.view(), space.view(), parts, left}, pool);
  gradient_outside_host({g.view(), r.view(), rho.view(), sums.view(), parts, left}, pool);
  return joined({basis.values(), energy.values(), rho.values()});
}

// A layer of experts: some of them have more than a panel of rows, and some have a few.
std::vector<float> experts_case(ThreadPool& pool) {
  const std::int64_t tokens = 150, k = 3, rows = tokens * k, h = 70, f = 50;
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(rows)), offsets(10), source = chosen,
                                                                                 position = chosen;
  TensorView choices = test::view(chosen);
  choices.shape = {tokens, k};
  Tensor logits({tokens, 9}, Values(1).floats(tokens * 9)), x({tokens, h}, Values(2).floats(tokens * h)),
      up({9, 2 * f, h}, Values(3).floats(18 * f * h)), down({9, h, f}, Values(4).floats(9 * h * f));
  Tensor weights = Tensor::unwritten({tokens, k}), dweights = weights, xs = Tensor::unwritten({rows, h}),
         ys = xs, gates = Tensor::unwritten({rows, 2 * f}), a = Tensor::unwritten({rows, f}), da = a, y = x,
         dlogits = logits, ddown = down, db = Tensor::unwritten({9, h});
  Workspace space(expert_linear_forward_workspace_bytes({rows, 9, 2 * f, h, DType::f32}));
  router_top_k_host({logits.view(), {}, choices, weights.view(), {.renormalize = true}}, pool);
  route_rows_host({choices, test::view(offsets), test::view(source), test::view(position)}, pool);
  gather_rows_host({x.view(), test::view(source), xs.view()}, pool);
  const TensorView at = test::view(offsets);
  expert_linear_forward_host({xs.view(), up.view(), {}, at, gates.view(), 0, space.view()}, pool);
  const ExpertGate gate = {ExpertGate::Kind::clamped, 3.0f, 1.702f};
  expert_gate_forward_host({gates.view(), weights.view(), test::view(source), a.view(), gate}, pool);
  expert_linear_forward_host({a.view(), down.view(), {}, at, ys.view(), 0, space.view()}, pool);
  sum_rows_host({ys.view(), test::view(position), x.view(), y.view()}, pool);
  expert_linear_backward_input_host({xs.view(), down.view(), at, da.view(), 0, space.view()}, pool);
  expert_linear_backward_weight_host({xs.view(), a.view(), at, ddown.view(), 0, true}, pool);
  expert_linear_backward_bias_host({xs.view(), at, db.view()}, pool);
  expert_gate_backward_host(
      {gates.view(), weights.view(), test::view(source), da.view(), gates.view(), dweights.view(), gate},
      pool);
  router_top_k_backward_host({logits.view(), choices, dweights.view(), dlogits.view(), {.renormalize = true}},
                             pool);
  return joined(
      {weights.values(), y.values(), ddown.values(), db.values(), gates.values(), dlogits.values()});
}

class DeterminismTest : public ::testing::TestWithParam<ThreadCase> {};

TEST_P(DeterminismTest, ThreadsNeverChangeABit) {
  const auto want = GetParam().run(*test::pool(1));
  for (const int threads : {2, 3, 8})
    EXPECT_EQ(test::differing_bits(GetParam().run(*test::pool(threads)), want), 0u) << threads << " threads";
}

TEST_P(DeterminismTest, InstructionSetsNeverChangeABit) {
  const auto pool = test::pool(1);
  const auto want = GetParam().run(*pool);
  for (const simd::CpuIsa name : test::supported_isas()) {
    const test::IsaScope isa(name);
    EXPECT_EQ(test::differing_bits(GetParam().run(*pool), want), 0u) << to_string(name);
  }
}

TEST_P(DeterminismTest, AllResultsAreFinite) {
  std::size_t not_finite = 0;
  for (const float x : GetParam().run(*test::pool())) not_finite += !std::isfinite(x);
  EXPECT_EQ(not_finite, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Ops, DeterminismTest,
    ::testing::Values(ThreadCase{"embedding", &embedding_case}, ThreadCase{"layernorm", &layernorm_case},
                      ThreadCase{"rmsnorm", &rmsnorm_case}, ThreadCase{"heads", &heads_case},
                      ThreadCase{"linear", &linear_case}, ThreadCase{"elementwise", &elementwise_case},
                      ThreadCase{"cross_entropy", &cross_entropy_case},
                      ThreadCase{"log_probs", &log_probs_case}, ThreadCase{"attention", &attention_case},
                      ThreadCase{"dora", &dora_case}, ThreadCase{"subspace", &subspace_case},
                      ThreadCase{"experts", &experts_case}),
    [](const auto& test_case) { return std::string(test_case.param.name); });

}  // namespace
}  // namespace strata::kernels
