#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include <strata/kernels/align/row_scores.h>
#include <strata/kernels/attention.h>
#include <strata/kernels/cross_entropy.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/embedding.h>
#include <strata/kernels/experts/expert_linear.h>
#include <strata/kernels/experts/gate.h>
#include <strata/kernels/experts/rows.h>
#include <strata/kernels/layernorm.h>
#include <strata/kernels/linear.h>
#include <strata/kernels/rmsnorm.h>
#include <strata/kernels/rope.h>
#include <strata/runtime/str.h>

#include "support/op_test.h"
#include "support/isas.h"

// An op on 16-bit values gives the bits of the f32 op on the same values, rounded once. GEMMs are tested in
// gemm_16bit_test.cpp, since the order of their sums is not fixed.
namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;
using test::Workspace;

/// The dtypes of a case. All values are representable in `precision`; the reference stores them in f32.
struct DtypeSetup {
  DType precision, activations, gradients;
  bool accumulate_gradients;
  ThreadPool& pool;

  Tensor in(Shape shape, std::uint64_t seed, double scale = 1.0) const {
    const Tensor rounded(shape, Values(seed).floats(shape.n_elems(), scale), precision);
    return Tensor(shape, rounded.values(), activations);
  }
  Tensor out(Shape shape) const { return Tensor::unwritten(shape, activations); }
  Tensor stat(Shape shape) const { return Tensor::unwritten(shape); }
  /// A parameter's gradient, with values to add to if accumulate_gradients.
  Tensor gradient(Shape shape, std::uint64_t seed) const {
    return accumulate_gradients ? Tensor(shape, Values(seed).floats(shape.n_elems()), gradients)
                                : Tensor::unwritten(shape, gradients);
  }
};

struct OpCase {
  const char* name;
  std::vector<Tensor> (*run)(const DtypeSetup& k);
};

std::vector<Tensor> elementwise_case(const DtypeSetup& k) {
  const Shape flat = {50001}, gates = {300, 200}, gated = {300, 100};
  Tensor x = k.in(flat, 1, 8.0), dy = k.in(flat, 2), gate_up = k.in(gates, 3, 8.0), dgated = k.in(gated, 4);
  Tensor gelu = k.out(flat), dgelu = gelu, relu = gelu, drelu = gelu, sum = gelu, filled = gelu;
  Tensor swiglu = k.out(gated), dswiglu = k.out(gates);
  gelu_forward_host({x.view(), gelu.view()}, k.pool);
  gelu_backward_host({x.view(), dy.view(), dgelu.view()}, k.pool);
  relu_forward_host({x.view(), relu.view()}, k.pool);
  relu_backward_host({x.view(), dy.view(), drelu.view()}, k.pool);
  add_host({x.view(), dy.view(), sum.view()}, k.pool);
  fill_host({filled.view(), 0.1f}, k.pool);
  swiglu_forward_host({gate_up.view(), swiglu.view()}, k.pool);
  swiglu_backward_host({gate_up.view(), dgated.view(), dswiglu.view()}, k.pool);
  return {gelu, dgelu, relu, drelu, sum, filled, swiglu, dswiglu};
}

std::vector<Tensor> embedding_case(const DtypeSetup& k) {
  auto ids = Values(1).below(600, 48);
  Tensor table = k.in({50, 597}, 2), dx = k.in({600, 597}, 3), x = k.out({600, 597});
  Tensor dtable = k.gradient({50, 597}, 4);
  embedding_forward_host({test::view(ids), table.view(), x.view(), 2}, k.pool);
  Workspace workspace(embedding_backward_workspace_bytes(600, 50));
  embedding_backward_host(
      {test::view(ids), dx.view(), dtable.view(), 2, k.accumulate_gradients, workspace.view()}, k.pool);
  return {x, dtable};
}

std::vector<Tensor> layernorm_case(const DtypeSetup& k) {
  const Shape shape = {700, 99}, h = {99}, rows = {700};
  Tensor x = k.in(shape, 1, 3.0), w = k.in(h, 2), b = k.in(h, 3), dy = k.in(shape, 4), y = k.out(shape);
  Tensor mean = k.stat(rows), rstd = mean, dx = k.in(shape, 5), written = dy;
  layernorm_forward_host({x.view(), w.view(), b.view(), y.view(), mean.view(), rstd.view()}, k.pool);
  Tensor dw = k.gradient(h, 6), db = k.gradient(h, 7), dw2 = dw, db2 = db;
  Workspace workspace(layernorm_backward_workspace_bytes(700, 99));
  const bool add = k.accumulate_gradients;
  layernorm_backward_host({x.view(), w.view(), mean.view(), rstd.view(), dy.view(), dx.view(), dw.view(),
                           db.view(), add, add, workspace.view(), dx.view()},
                          k.pool);
  layernorm_backward_host({x.view(), w.view(), mean.view(), rstd.view(), written.view(), written.view(),
                           dw2.view(), db2.view(), add, add, workspace.view()},
                          k.pool);
  return {y, mean, rstd, dx, dw, db, written, dw2, db2};
}

std::vector<Tensor> rmsnorm_case(const DtypeSetup& k) {
  const Shape shape = {700, 99}, h = {99};
  Tensor x = k.in(shape, 1, 3.0), w = k.in(h, 2), dy = k.in(shape, 3), y = k.out(shape), rstd = k.stat({700});
  rmsnorm_forward_host({x.view(), w.view(), y.view(), rstd.view(), 1e-6f}, k.pool);
  Tensor dx = k.out(shape), dw = k.gradient(h, 4), joined = k.in(shape, 5), dw2 = dw;
  Workspace workspace(rmsnorm_backward_workspace_bytes(700, 99));
  rmsnorm_backward_host({x.view(), w.view(), rstd.view(), dy.view(), dx.view(), dw.view(),
                         k.accumulate_gradients, workspace.view()},
                        k.pool);
  rmsnorm_backward_host({x.view(), w.view(), rstd.view(), dy.view(), joined.view(), dw2.view(),
                         k.accumulate_gradients, workspace.view(), joined.view()},
                        k.pool);
  return {y, rstd, dx, dw, joined, dw2};
}

std::vector<Tensor> row_scores_case(const DtypeSetup& k) {
  const Shape shape = {700, 99}, h = {1, 99};
  Tensor x = k.in(shape, 1, 3.0), w = k.in(h, 2), bias = k.in({1}, 3), scores = k.stat({700});
  row_scores_host({x.view(), w.view(), bias.view(), scores.view()}, k.pool);
  Tensor dx = k.out(shape), dw = k.gradient(h, 4), db = k.gradient({1}, 5);
  Workspace workspace(row_scores_backward_workspace_bytes(700, 99));
  row_scores_backward_host({x.view(), w.view(), scores.view(), dx.view(), dw.view(), db.view(),
                            k.accumulate_gradients, k.accumulate_gradients, workspace.view()},
                           k.pool);
  return {scores, dx, dw, db};
}

std::vector<Tensor> no_rows_case(const DtypeSetup& k) {  // empty sums
  Tensor x = k.in({0, 20}, 1), w = k.in({20}, 2), dw = k.gradient({20}, 3), db = k.gradient({20}, 4);
  Tensor rstd = k.stat({0});
  Workspace workspace(rmsnorm_backward_workspace_bytes(0, 20));
  rmsnorm_backward_host({x.view(), w.view(), rstd.view(), x.view(), x.view(), dw.view(),
                         k.accumulate_gradients, workspace.view()},
                        k.pool);
  linear_backward_bias_host({x.view(), db.view(), k.accumulate_gradients, workspace.view()}, k.pool);
  return {dw, db};
}

std::vector<Tensor> heads_case(const DtypeSetup& k) {
  const std::int64_t rows = 600, d = 18, width = 7 * d;
  Tensor qkv = k.in({rows, width}, 1, 3.0), q = k.in({d}, 2), kw = k.in({d}, 3), dy = k.in({rows, width}, 4);
  Tensor y = k.out({rows, width}), rstd = k.stat({rows * 5}), rotated = y, other = y, dx = y;
  qk_norm_forward_host({qkv.view(), q.view(), kw.view(), y.view(), rstd.view(), 3, 2, 1e-6f}, k.pool);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(rows));
  positions_host({{}, test::view(positions), 100}, k.pool);
  Tensor table = k.stat({100, 16});
  rope_table_host({table.view(), {}}, k.pool);
  rope_host({qkv.view(), test::view(positions), table.view(), rotated.view(), 5, d, false, false}, k.pool);
  rope_host({qkv.view(), test::view(positions), table.view(), other.view(), 5, d, true, true}, k.pool);
  Tensor dq = k.gradient({d}, 5), dk = k.gradient({d}, 6);
  Workspace workspace(qk_norm_backward_workspace_bytes(rows, d, d));
  const bool add = k.accumulate_gradients;
  qk_norm_backward_host({qkv.view(), q.view(), kw.view(), rstd.view(), dy.view(), dx.view(), dq.view(),
                         dk.view(), 3, 2, add, add, workspace.view()},
                        k.pool);
  return {y, rstd, rotated, other, dx, dq, dk};
}

std::vector<Tensor> cross_entropy_of(const DtypeSetup& k, std::int64_t vocab, double scale) {
  const Shape rows = {90};
  auto targets = Values(1).below(90, vocab);
  targets[7] = -1;
  Tensor logits = k.in({90, vocab}, 2, scale), dlogits = k.out({90, vocab});
  Tensor losses = k.stat(rows), lse = losses, mean = k.stat({1});
  cross_entropy_forward_host({logits.view(), test::view(targets), losses.view(), lse.view(), mean.view()},
                             k.pool);
  cross_entropy_backward_host({logits.view(), test::view(targets), lse.view(), dlogits.view(), 0.1f}, k.pool);
  cross_entropy_backward_host({logits.view(), test::view(targets), lse.view(), logits.view(), 1.0f, true},
                              k.pool);
  return {losses, lse, mean, dlogits, logits};
}
std::vector<Tensor> cross_entropy_case(const DtypeSetup& k) { return cross_entropy_of(k, 5003, 30.0); }
// Here targets have a large part of the probability, so that the subtraction in their entry matters.
std::vector<Tensor> few_classes_case(const DtypeSetup& k) { return cross_entropy_of(k, 7, 2.0); }

std::vector<Tensor> attention_case(const DtypeSetup& k) {
  const std::int64_t tokens = 3 * 140, d = 12, width = 8 * d;
  const AttentionHeads heads{4, 2, 140, true, true};
  std::vector<std::int32_t> starts(static_cast<std::size_t>(tokens));
  for (std::size_t t = 0; t < starts.size(); ++t) starts[t] = static_cast<std::int32_t>(t % 140 / 50 * 50);
  Tensor qkv = k.in({tokens, width}, 1, 3.0), dout = k.in({tokens, 4 * d}, 2),
         given = k.in({tokens, 4 * d}, 3);
  Tensor out = k.out({tokens, 4 * d}), lse = k.stat({3, 4, 140}), dqkv = k.out({tokens, width});
  Workspace forward(attention_forward_workspace_bytes(tokens, heads, k.activations, d)),
      backward(attention_backward_workspace_bytes(tokens, heads, k.activations, d));
  attention_forward_host({qkv.view(), out.view(), lse.view(), test::view(starts), heads, forward.view()},
                         k.pool);
  attention_backward_host({qkv.view(), given.view(), lse.view(), dout.view(), test::view(starts), dqkv.view(),
                           heads, backward.view()},
                          k.pool);
  return {out, lse, dqkv};
}

std::vector<Tensor> bias_case(const DtypeSetup& k) {
  Tensor dy = k.in({300, 520}, 1), db = k.gradient({520}, 2);
  Workspace workspace(linear_backward_bias_workspace_bytes(300, 520));
  linear_backward_bias_host({dy.view(), db.view(), k.accumulate_gradients, workspace.view()}, k.pool);
  return {db};
}

std::vector<Tensor> experts_case(const DtypeSetup& k) {
  const std::int64_t tokens = 50, chosen = 4, rows = tokens * chosen, h = 99;
  std::vector<std::int32_t> experts = Values(1).below(rows, 7), offsets(8),
                            source(static_cast<std::size_t>(rows)), position = source;
  route_rows_host({test::view(experts), test::view(offsets), test::view(source), test::view(position)},
                  k.pool);
  Tensor x = k.in({tokens, h}, 2), xs = k.out({rows, h}), gates = k.in({rows, 2 * h}, 3, 8.0),
         da = k.in({rows, h}, 4), a = k.out({rows, h}), y = k.out({tokens, h}), dgates = k.out({rows, 2 * h}),
         weights({rows}, Values(5).floats(rows)), dweights = k.stat({rows}), db = k.gradient({7, h}, 6);
  const ExpertGate gate = {ExpertGate::Kind::clamped, 3.0f, 1.702f};
  gather_rows_host({x.view(), test::view(source), xs.view()}, k.pool);
  expert_gate_forward_host({gates.view(), weights.view(), test::view(source), a.view(), gate}, k.pool);
  expert_gate_backward_host(
      {gates.view(), weights.view(), test::view(source), da.view(), dgates.view(), dweights.view(), gate},
      k.pool);
  sum_rows_host({da.view(), test::view(position), x.view(), y.view()}, k.pool);
  expert_linear_backward_bias_host({da.view(), test::view(offsets), db.view(), 0, k.accumulate_gradients},
                                   k.pool);
  return {xs, a, dgates, dweights, y, db};
}

// One op with 16-bit tensors, and gradients in f32 or in the same dtype.
struct StorageCase {
  OpCase op;
  DType storage;
  bool f32_gradients;

  std::vector<Tensor> run(DType activations, ThreadPool& pool) const {
    const DType gradients = f32_gradients ? DType::f32 : activations;
    return op.run({storage, activations, gradients, f32_gradients, pool});
  }
  std::string name() const {
    return str(op.name, " in ", to_string(storage), f32_gradients ? ", gradients in f32" : "");
  }
};

std::vector<StorageCase> all_storage_cases() {
  std::vector<StorageCase> all;
  for (const OpCase& op :
       {OpCase{"elementwise", &elementwise_case}, OpCase{"embedding", &embedding_case},
        OpCase{"layernorm", &layernorm_case}, OpCase{"rmsnorm", &rmsnorm_case},
        OpCase{"no_rows", &no_rows_case}, OpCase{"heads", &heads_case},
        OpCase{"cross_entropy", &cross_entropy_case}, OpCase{"few_classes", &few_classes_case},
        OpCase{"attention", &attention_case}, OpCase{"bias", &bias_case},
        OpCase{"row_scores", &row_scores_case}, OpCase{"experts", &experts_case}})
    for (const DType storage : {DType::bf16, DType::f16})
      for (const bool f32_gradients : {false, true}) all.push_back({op, storage, f32_gradients});
  return all;
}

void expect_same_bits(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                      std::string_view with) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ(test::differing_bits(got[i].values(), want[i].values()), 0u) << "result " << i << ", " << with;
}

TEST(StorageTest, GivesTheF32ResultRoundedOnce) {
  const auto pool = test::pool();
  for (const StorageCase& stored : all_storage_cases()) {
    SCOPED_TRACE(stored.name());
    const std::vector<Tensor> got = stored.run(stored.storage, *pool), want = stored.run(DType::f32, *pool);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::vector<float> values = got[i].values();
      const Tensor rounded({static_cast<std::int64_t>(values.size())}, want[i].values(), got[i].dtype());
      EXPECT_EQ(test::differing_bits(values, rounded.values()), 0u) << "result " << i;
      EXPECT_EQ(std::count_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); }), 0)
          << "result " << i;
    }
  }
}

TEST(StorageTest, NeitherThreadsNorInstructionSetsChangeABit) {
  for (const StorageCase& stored : all_storage_cases()) {
    SCOPED_TRACE(stored.name());
    const std::vector<Tensor> want = stored.run(stored.storage, *test::pool(1));
    expect_same_bits(stored.run(stored.storage, *test::pool(3)), want, "3 threads");
    for (const simd::CpuIsa name : test::supported_isas()) {
      const test::IsaScope isa(name);
      expect_same_bits(stored.run(stored.storage, *test::pool(2)), want, to_string(name));
    }
  }
}

}  // namespace
}  // namespace strata::kernels
