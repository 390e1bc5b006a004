#include <gtest/gtest.h>

#include <strata/graph/launch.h>
#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata {
namespace {

// The input of a norm may be a parameter. Its gradient then has contributions of other uses, which must stay.
TEST(LaunchTest, ANormAddsToTheGradientOfAParameter) {
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({}, *pool, clock));
  Stream stream = must(backend->create_stream(StreamRole::compute));
  std::vector<float> x = {1, 2, 3, -4}, weight = {1, 1}, mean = {1.5f, -0.5f}, rstd = {2, 0.25f},
                     dy = {1, 0, 0, 2}, stats(2), dweight(2), dbias(2), workspace(64);
  const auto view = [](std::vector<float>& values, Shape shape) {
    return TensorView{reinterpret_cast<std::byte*>(values.data()), shape, DType::f32};
  };
  const TensorView scratch{reinterpret_cast<std::byte*>(workspace.data()), {256}, DType::u8};
  const auto dx_of = [&](Op op, std::vector<float> dx, std::uint32_t accumulate) {
    const bool rms = op == Op::rmsnorm_backward;
    std::vector<TensorView> in = {view(x, {2, 2}), view(weight, {2})},
                            out = {view(dx, {2, 2}), view(dweight, {2})};
    if (!rms) in.push_back(view(mean, {2}));
    in.insert(in.end(), {view(rstd, {2}), view(dy, {2, 2}), TensorView{}});
    if (!rms) out.push_back(view(dbias, {2}));
    out.push_back(scratch);
    const Attrs attrs = rms ? Attrs(RmsnormAttrs{}) : Attrs(LayernormAttrs{});
    const OpCall call{.op = op, .attrs = attrs, .accumulate = accumulate, .in = in, .out = out};
    must(launch(call, *backend, stream));
    must(backend->synchronize(stream));
    return dx;
  };
  for (const Op op : {Op::rmsnorm_backward, Op::layernorm_backward}) {
    const std::vector<float> alone = dx_of(op, {9, 9, 9, 9}, 0), sum = dx_of(op, {9, 9, 9, 9}, 1);
    for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], 9 + alone[i]);
  }
}

TEST(LaunchTest, AMoveIsRefused) {
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({}, *pool, clock));
  Stream stream = must(backend->create_stream(StreamRole::compute));
  const OpCall call{.op = Op::fetch_end, .attrs = MoveAttrs{}, .accumulate = 0, .in = {}, .out = {}};
  const Status status = launch(call, *backend, stream);
  EXPECT_EQ(status.code(), Code::internal);
  EXPECT_EQ(status.message(), "fetch_end: a move has no kernel; the executor of the program must do it");
}

}  // namespace
}  // namespace strata
