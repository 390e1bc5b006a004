#include <strata/kernels/attention.h>
#include <strata/kernels/cross_entropy.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/embedding.h>
#include <strata/kernels/layernorm.h>
#include <strata/kernels/linear.h>
#include <strata/kernels/rmsnorm.h>
#include <strata/kernels/rope.h>
#include <strata/runtime/memory/alloc_counter.h>

#include "support/op_test.h"

// Tests what the *_async functions do besides computing: checks, declared memory, stream order, allocations.
namespace strata::kernels {
namespace {

using test::InlineBackend;
using test::Tensor;

class QueueTest : public ::testing::Test {
 protected:
  InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor t(Shape shape, DType dtype = DType::f32) {
    return Tensor(shape, std::vector<float>(static_cast<std::size_t>(shape.n_elems()), 1.0f), dtype);
  }
  void expect_refused(const Status& status, std::string_view part) {
    EXPECT_EQ(status.code(), Code::invalid);
    EXPECT_NE(status.message().find(part), std::string_view::npos) << status.message();
    EXPECT_EQ(backend.calls, 0);
  }
};

TEST_F(QueueTest, AnOpRunsInStreamOrderAndDeclaresItsMemory) {
  Tensor x = t({2, 3}), w = t({4, 3}), y = Tensor::unwritten({2, 4});
  must(linear_forward_async(backend, stream, {x.view(), w.view(), {}, y.view()}));
  EXPECT_EQ(y.values(), std::vector<float>(8, 3.0f));
  ASSERT_EQ(backend.last.accesses().size(), 3u);
  EXPECT_EQ(backend.last.accesses()[1].data, w.view().data);
  EXPECT_FALSE(backend.last.accesses()[1].write);
  EXPECT_EQ(backend.last.accesses()[2].data, y.view().data);
  EXPECT_EQ(backend.last.accesses()[2].bytes, 32u);
  EXPECT_TRUE(backend.last.accesses()[2].write);
}

TEST_F(QueueTest, AnOpDoesNotAllocateItself) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    // Long shapes, so that a message about them would not fit in a string without allocating.
    const std::int64_t n = 1024, h = 1000;
    const std::vector<float> values(static_cast<std::size_t>(n * h), 1.0f);
    Tensor x({n, h}, values, dtype), w({h, h}, std::vector<float>(static_cast<std::size_t>(h * h)), dtype);
    Tensor norm({h}, std::vector<float>(static_cast<std::size_t>(h)), dtype), y = x;
    Tensor rows = t({n}), v = t({n});
    const auto run = [&] {
      must(linear_forward_async(backend, stream, {x.view(), w.view(), {}, y.view()}));
      must(gelu_forward_async(backend, stream, {x.view(), y.view()}));
      must(layernorm_forward_async(backend, stream,
                                   {x.view(), norm.view(), norm.view(), y.view(), rows.view(), v.view()}));
    };
    run();
    ASSERT_TRUE(AllocCounter::hooked());
    const std::uint64_t before = AllocCounter::count();
    AllocCounter::set_armed(true);
    run();
    AllocCounter::set_armed(false);
    EXPECT_EQ(AllocCounter::count() - before, 0u) << to_string(dtype);
  }
}

TEST_F(QueueTest, AWorkspaceIsDeclaredAsWritten) {
  Tensor qkv = t({4, 6}), out = t({4, 2}), lse = t({4});
  test::Workspace workspace(attention_forward_workspace_bytes(4, {1, 1, 4}));
  must(attention_forward_async(backend, stream,
                               {qkv.view(), out.view(), lse.view(), {}, {1, 1, 4}, workspace.view()}));
  EXPECT_EQ(backend.last.accesses().back().data, workspace.view().data);
  EXPECT_TRUE(backend.last.accesses().back().write);
}

TEST_F(QueueTest, RowsMayHaveAnyRank) {
  Tensor x = t({2, 3, 5}), w = t({4, 5}), y = Tensor::unwritten({6, 4});
  must(linear_forward_async(backend, stream, {x.view(), w.view(), {}, y.view()}));
  EXPECT_EQ(y.values(), std::vector<float>(24, 5.0f));
}

TEST_F(QueueTest, AFakeCudaBackendGetsNoHostKernel) {
  InlineBackend cuda(DeviceKind::cuda);
  Tensor x = t({8}), y = t({8});
  const Status status = gelu_forward_async(cuda, stream, {x.view(), y.view()});
  // A build without CUDA has no kernel (`unsupported`); one with CUDA rejects this stream (`invalid`).
  EXPECT_TRUE(status.code() == Code::unsupported || status.code() == Code::invalid) << status.message();
  EXPECT_EQ(cuda.calls, 0);
}

TEST_F(QueueTest, LinearNamesTheTensorAndBothShapes) {
  Tensor x = t({2, 3}), w = t({4, 5}), y = t({2, 4});
  expect_refused(linear_forward_async(backend, stream, {x.view(), w.view(), {}, y.view()}),
                 "linear_forward: w is f32 [4, 5]; it must be f32 [4, 3]");
}

TEST_F(QueueTest, AWrongDtypeIsRefused) {
  std::vector<std::int32_t> ints(8);
  Tensor y = t({8});
  expect_refused(gelu_forward_async(backend, stream, {test::view(ints), y.view()}),
                 "x is i32 [8]; it must be f32");
}

TEST_F(QueueTest, ActivationsAndParametersShareADtype) {
  Tensor x = t({2, 3}, DType::bf16), w = t({4, 3}), y = t({2, 4}, DType::bf16), h = t({3}, DType::f16);
  expect_refused(linear_forward_async(backend, stream, {x.view(), w.view(), {}, y.view()}),
                 "w is f32 [4, 3]; it must be bf16 [4, 3]");
  Tensor rstd = t({2});
  expect_refused(rmsnorm_forward_async(backend, stream, {x.view(), h.view(), x.view(), rstd.view()}),
                 "weight is f16 [3]; it must be bf16 [3]");
  expect_refused(gelu_forward_async(backend, stream, {y.view(), rstd.view()}),
                 "y is f32 [2]; it must be bf16 with 8 elements");
  Tensor statistics = t({2}, DType::bf16), weight = t({3}, DType::bf16);
  expect_refused(
      rmsnorm_forward_async(backend, stream, {x.view(), weight.view(), x.view(), statistics.view()}),
      "rstd is bf16 [2]; it must be f32 with 2 elements");
}

TEST_F(QueueTest, AGradientInSixteenBitsIsWrittenButNotAddedTo) {
  Tensor x = t({2, 3}, DType::bf16), dy = t({2, 4}, DType::bf16);
  Tensor dw = t({4, 3}, DType::bf16), wide = t({4, 3}), other = t({4, 3}, DType::f16);
  expect_refused(linear_backward_weight_async(backend, stream, {dy.view(), x.view(), dw.view(), true}),
                 "dw is bf16; only an f32 gradient can be accumulated into");
  expect_refused(linear_backward_weight_async(backend, stream, {dy.view(), x.view(), other.view()}),
                 "dw is f16 [4, 3]; it must be bf16 [4, 3]");
  must(linear_backward_weight_async(backend, stream, {dy.view(), x.view(), dw.view()}));
  must(linear_backward_weight_async(backend, stream, {dy.view(), x.view(), wide.view(), true}));
  EXPECT_EQ(dw.values(), std::vector<float>(12, 2.0f));
  EXPECT_EQ(wide.values(), std::vector<float>(12, 3.0f));
}

TEST_F(QueueTest, AttentionIn16BitsNeedsScratchForAHead) {
  Tensor qkv = t({4, 6}, DType::bf16), out = t({4, 2}, DType::bf16), lse = t({4});
  test::Workspace small(attention_forward_workspace_bytes(4, {1, 1, 4})),
      enough(attention_forward_workspace_bytes(4, {1, 1, 4}, DType::bf16, 2));
  expect_refused(attention_forward_async(backend, stream,
                                         {qkv.view(), out.view(), lse.view(), {}, {1, 1, 4}, small.view()}),
                 "workspace has 64 bytes; it needs 192");
  must(attention_forward_async(backend, stream,
                               {qkv.view(), out.view(), lse.view(), {}, {1, 1, 4}, enough.view()}));
}

TEST_F(QueueTest, EmbeddingNeedsARowForEachId) {
  std::vector<std::int32_t> ids(8);
  Tensor table = t({5, 2}), x = t({7, 2});
  expect_refused(embedding_forward_async(backend, stream, {test::view(ids), table.view(), x.view()}),
                 "x is f32 [7, 2]; it must be f32, 8 rows of 2");
}

TEST_F(QueueTest, RopeRotatesNoMoreThanAHead) {
  std::vector<std::int32_t> positions(4);
  Tensor x = t({4, 12}), table = t({4, 6});
  expect_refused(rope_async(backend, stream,
                            {.x = x.view(),
                             .positions = test::view(positions),
                             .table = table.view(),
                             .y = x.view(),
                             .heads = 3,
                             .head_dim = 4}),
                 "6 elements of a head of 4 are rotated");
}

TEST_F(QueueTest, ASmallWorkspaceIsRefusedWithBothSizes) {
  Tensor dy = t({100, 4}), db = t({4});
  test::Workspace workspace(8);
  expect_refused(linear_backward_bias_async(backend, stream, {dy.view(), db.view(), false, workspace.view()}),
                 "workspace has 8 bytes; it needs 32");
}

TEST_F(QueueTest, AttentionNeedsWholeHeadsAndSequences) {
  Tensor qkv = t({4, 12}), out = t({4, 4}), lse = t({12});
  expect_refused(
      attention_forward_async(backend, stream, {qkv.view(), out.view(), lse.view(), {}, {3, 3, 4}, {}}),
      "rows of 12 are not a multiple of 3 + 2 * 3 heads");
  expect_refused(
      attention_forward_async(backend, stream, {qkv.view(), out.view(), lse.view(), {}, {2, 2, 3}, {}}),
      "4 tokens are not a multiple of seq 3");
}

TEST_F(QueueTest, LayernormAndCrossEntropyCheckTheirRowValues) {
  Tensor x = t({4, 3}), w = t({3}), mean = t({5}), rstd = t({4});
  expect_refused(layernorm_forward_async(backend, stream,
                                         {x.view(), w.view(), w.view(), x.view(), mean.view(), rstd.view()}),
                 "mean is f32 [5]; it must be f32 with 4 elements");
  std::vector<std::int32_t> targets(3);
  Tensor one = t({1});
  expect_refused(cross_entropy_forward_async(
                     backend, stream, {x.view(), test::view(targets), rstd.view(), rstd.view(), one.view()}),
                 "targets is i32 [3]; it must be i32 with 4 elements");
}

}  // namespace
}  // namespace strata::kernels
