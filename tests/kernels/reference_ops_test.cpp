#include "support/reference_ops.h"

#include <gtest/gtest.h>

#include "support/numeric.h"

// Tests the gradients of the reference ops against central differences of their forwards.
namespace strata::test::reference {
namespace {

Vec random(std::size_t n, std::uint64_t seed) {
  Values values(seed);
  Vec out(n);
  for (double& x : out) x = values.next();
  return out;
}

TEST(ReferenceOpsTest, LayernormGradientsAreCentralDifferences) {
  const Vec x = random(3 * 7, 1), w = random(7, 2), b = random(7, 3), dy = random(3 * 7, 4);
  const auto f = [&](const Vec& xx, const Vec& ww, const Vec& bb) {
    return dot(dy, layernorm_forward(xx, ww, bb, 1e-5).y);
  };
  const Layernorm forward = layernorm_forward(x, w, b, 1e-5);
  const LayernormGrads g = layernorm_backward(x, w, forward.mean, forward.rstd, dy);
  EXPECT_LE(relative_error(g.dx, central_differences([&](const Vec& v) { return f(v, w, b); }, x)), 1e-7);
  EXPECT_LE(relative_error(g.dweight, central_differences([&](const Vec& v) { return f(x, v, b); }, w)),
            1e-7);
  EXPECT_LE(relative_error(g.dbias, central_differences([&](const Vec& v) { return f(x, w, v); }, b)), 1e-7);
}

TEST(ReferenceOpsTest, LinearGradientsAreCentralDifferences) {
  const Vec x = random(3 * 5, 1), w = random(4 * 5, 2), b = random(4, 3), dy = random(3 * 4, 4);
  const auto f = [&](const Vec& xx, const Vec& ww, const Vec& bb) {
    return dot(dy, linear_forward(xx, ww, bb, 3, 4, 5));
  };
  const LinearGrads g = linear_backward(x, w, dy, 3, 4, 5);
  EXPECT_LE(relative_error(g.dx, central_differences([&](const Vec& v) { return f(v, w, b); }, x)), 1e-7);
  EXPECT_LE(relative_error(g.dw, central_differences([&](const Vec& v) { return f(x, v, b); }, w)), 1e-7);
  EXPECT_LE(relative_error(g.db, central_differences([&](const Vec& v) { return f(x, w, v); }, b)), 1e-7);
}

TEST(ReferenceOpsTest, EmbeddingGradientIsACentralDifference) {
  const Ints ids = {2, 0, 2, 1, 2, 3};
  const Vec table = random(5 * 3, 1), dx = random(6 * 3, 3);
  const auto f = [&](const Vec& v) { return dot(dx, embedding_forward(ids, v, 3, 1)); };
  EXPECT_LE(relative_error(embedding_backward(ids, dx, 3, 5, 1), central_differences(f, table)), 1e-7);
}

TEST(ReferenceOpsTest, GeluGradientIsACentralDifference) {
  Vec x = random(40, 1);
  for (double& v : x) v *= 5.0;
  const Vec dy = random(40, 2);
  EXPECT_LE(relative_error(gelu_backward(x, dy),
                           central_differences([&](const Vec& v) { return dot(dy, gelu_forward(v)); }, x)),
            1e-7);
}

TEST(ReferenceOpsTest, CrossEntropyGradientIsACentralDifference) {
  const Vec logits = random(4 * 6, 1);
  const Ints targets = {5, -1, 0, 3};
  const Vec lse = cross_entropy_forward(logits, targets, 6).lse;
  const auto mean = [&](const Vec& v) { return cross_entropy_forward(v, targets, 6).mean_loss; };
  EXPECT_LE(relative_error(cross_entropy_backward(logits, targets, lse, 6, 1.0 / 3.0),
                           central_differences(mean, logits)),
            1e-7);
}

TEST(ReferenceOpsTest, AttentionGradientIsACentralDifference) {
  const AttentionShape plain{.batch = 2, .seq = 4, .heads = 2, .head_dim = 3};
  AttentionShape full = plain, grouped = plain, packed = plain;
  full.causal = false;
  grouped.kv_heads = 1;
  grouped.alibi = true;
  packed.doc_start = {0, 0, 2, 2, 0, 1, 1, 1};
  for (const AttentionShape& shape : {plain, full, grouped, packed}) {
    const Vec qkv = random(8 * shape.width(), 1), dout = random(8 * 6, 2);
    const auto f = [&](const Vec& v) { return dot(dout, attention_forward(v, shape).out); };
    EXPECT_LE(relative_error(attention_backward(qkv, dout, shape), central_differences(f, qkv)), 1e-7);
  }
}

}  // namespace
}  // namespace strata::test::reference
