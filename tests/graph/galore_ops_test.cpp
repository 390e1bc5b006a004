#include <cmath>

#include <gmock/gmock.h>

#include <strata/graph/builder.h>
#include <strata/graph/launch.h>
#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata {
namespace {

using kernels::SubspaceSide;
using kernels::SvdMethod;
using ::testing::HasSubstr;

const LoraAttrs kTwoParts = {{{{0, 4, 2}, {5, 3, 1}}}, 2};

// The recorded op's error, or "ok". g is [8, 6].
std::string message_of(Op op, const Shape& other, const LoraAttrs& parts, SubspaceSide side,
                       DType dtype = DType::f32) {
  Builder b;
  b.op(op, {b.input("g", {8, 6}, DType::f32), b.input("other", other, dtype)},
       BasisAttrs{.parts = parts, .side = side});
  return std::string(b.finish({}).status().message());
}

TEST(GaloreOpsTest, ABasisHasTheShapeOfAFactorAndTheProjectedGradientThatOfTheOther) {
  for (const auto& [op, right, left] :
       {std::tuple(Op::find_basis, Shape{3, 6}, Shape{11}), {Op::gradient_outside, Shape{11}, Shape{3, 6}}}) {
    EXPECT_EQ(message_of(op, right, kTwoParts, SubspaceSide::right), "ok");
    EXPECT_EQ(message_of(op, left, kTwoParts, SubspaceSide::left), "ok");
    EXPECT_EQ(message_of(op, left, kTwoParts, SubspaceSide::left, DType::bf16), "ok");
    EXPECT_THAT(message_of(op, left, kTwoParts, SubspaceSide::right), HasSubstr("needs g [N, K]"));
    EXPECT_THAT(message_of(op, right, kTwoParts, SubspaceSide::left), HasSubstr("other"));
    EXPECT_THAT(message_of(op, right, kTwoParts, SubspaceSide::right, DType::i32),
                HasSubstr("of f32, bf16 or f16"));
  }
}

TEST(GaloreOpsTest, PartsThatDoNotFitTheGradientAreRefused) {
  const LoraAttrs beyond = {{{{5, 4, 2}}}, 1}, high = {{{{0, 8, 7}}}, 1},
                  overlap = {{{{0, 4, 1}, {3, 4, 1}}}, 2}, none = {};
  EXPECT_THAT(message_of(Op::find_basis, {2, 6}, beyond, SubspaceSide::right), HasSubstr("1 parts"));
  EXPECT_THAT(message_of(Op::find_basis, {7, 6}, high, SubspaceSide::right),
              HasSubstr("a rank of at most min(rows, K)"));
  EXPECT_THAT(message_of(Op::find_basis, {2, 6}, overlap, SubspaceSide::right),
              HasSubstr("in the order of their rows"));
  EXPECT_THAT(message_of(Op::gradient_outside, {1}, none, SubspaceSide::right), HasSubstr("0 parts"));
}

TEST(GaloreOpsTest, TheWorkIsThatOfTheProductsWithTheGradient) {
  Builder b;
  const Value g = b.input("g", {8, 6}, DType::f32), previous = b.input("previous", {3, 6}, DType::f32),
              r = b.input("r", {11}, DType::f32);
  b.op(Op::find_basis, {g, previous}, BasisAttrs{.parts = kTwoParts});
  b.op(Op::gradient_outside, {g, r}, BasisAttrs{.parts = kTwoParts});
  const Program program = must(b.finish({}));
  EXPECT_EQ(flops(program, program.code[0]), 4.0 * 4 * 6 * (4 * 2 + 3 * 1));
  EXPECT_EQ(flops(program, program.code[1]), 2.0 * (48 + 11));
}

// The gradient is of rank one: its basis is its row, and nothing is outside.
TEST(GaloreOpsTest, TheOpsRunTheirKernels) {
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({}, *pool, clock));
  Stream stream = must(backend->create_stream(StreamRole::compute));
  std::vector<float> g = {3, 4, 6, 8, -3, -4}, previous(2), basis(2), energy(1), r = {5, 10, -5},
                     rho(1, 7.0f);
  std::vector<std::byte> space(1 << 14);
  const auto view = [](std::vector<float>& values, Shape shape) {
    return TensorView{reinterpret_cast<std::byte*>(values.data()), shape, DType::f32};
  };
  const TensorView scratch{space.data(), {1 << 14}, DType::u8};
  const auto run = [&](Op op, SvdMethod method, std::vector<TensorView> in, std::vector<TensorView> out) {
    out.push_back(scratch);
    const OpCall call{.op = op,
                      .attrs = BasisAttrs{.parts = {{{{0, 3, 1}}}, 1}, .method = method},
                      .accumulate = 0,
                      .in = in,
                      .out = out};
    must(launch(call, *backend, stream));
    must(backend->synchronize(stream));
  };
  for (const SvdMethod method : {SvdMethod::subspace, SvdMethod::exact}) {
    run(Op::find_basis, method, {view(g, {3, 2}), view(previous, {1, 2})},
        {view(basis, {1, 2}), view(energy, {1})});
    EXPECT_NEAR(basis[0], 0.6f, 1e-6f);
    EXPECT_NEAR(basis[1], 0.8f, 1e-6f);
    EXPECT_NEAR(energy[0], 1.0f, 1e-6f);
  }
  run(Op::gradient_outside, {}, {view(g, {3, 2}), view(r, {3})}, {view(rho, {1})});
  EXPECT_EQ(rho[0], 0.0f);
}

}  // namespace
}  // namespace strata
