#include <strata/runtime/memory/alloc_counter.h>
#include <strata/state_kernels/gradient.h>
#include <strata/state_kernels/update.h>

#include "support/op_test.h"

// Tests what the *_async functions do besides computing: checks, declared memory, allocations.
namespace strata::state_kernels {
namespace {

using cpuopt::MasterLayout;
using test::InlineBackend;
using test::Tensor;

class StateQueueTest : public ::testing::Test {
 protected:
  InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  const cpuopt::UpdateStep step = cpuopt::make_update_step({});
  Tensor ones(std::int64_t n) { return Tensor({n}, std::vector<float>(static_cast<std::size_t>(n), 1.0f)); }
  void expect_refused(const Status& status, std::string_view part) {
    EXPECT_EQ(status.code(), Code::invalid);
    EXPECT_NE(status.message().find(part), std::string_view::npos) << status.message();
    EXPECT_EQ(backend.calls, 0);
  }
};

TEST_F(StateQueueTest, AnUpdateDoesNotAllocateItself) {
  Tensor states = ones(1'024'000);
  float* const values = states.view().as<float>();
  const cpuopt::UpdateBlock block{
      .param = values, .m = {values, nullptr}, .v = {values, nullptr}, .g = values};
  const auto run = [&] { must(update_async(backend, stream, {step, block, states.view().n_elems()})); };
  run();
  ASSERT_TRUE(AllocCounter::hooked());
  const std::uint64_t before = AllocCounter::count();
  AllocCounter::set_armed(true);
  run();
  AllocCounter::set_armed(false);
  EXPECT_EQ(AllocCounter::count() - before, 0u);
}

TEST_F(StateQueueTest, AnUpdateDeclaresTheStatesThatItWritesAndTheGradientThatItReads) {
  Tensor p = ones(8), m = ones(8), v = ones(8), g = ones(8);
  const auto at = [](Tensor& tensor) { return tensor.view().as<float>(); };
  must(update_async(backend, stream,
                    {step, {.param = at(p), .m = {at(m), nullptr}, .v = {at(v), nullptr}, .g = at(g)}, 8}));
  ASSERT_EQ(backend.last.accesses().size(), 4u);
  for (int i = 0; i < 4; ++i) {
    const Access& access = backend.last.accesses()[static_cast<std::size_t>(i)];
    EXPECT_EQ(access.data, (i == 0 ? p : i == 1 ? m : i == 2 ? v : g).view().data) << i;
    EXPECT_EQ(access.bytes, 32u) << i;
    EXPECT_EQ(access.write, i < 3) << i;
  }
}

TEST_F(StateQueueTest, AMovingAverageDeclaresThatItReadsTheMasters) {
  Tensor p = ones(8), average = ones(8);
  must(ema_async(backend, stream, {0.5f, {.param = p.view().data, .ema = average.view().as<float>()}, 8}));
  ASSERT_EQ(backend.last.accesses().size(), 2u);
  EXPECT_EQ(backend.last.accesses()[0].data, p.view().data);
  EXPECT_FALSE(backend.last.accesses()[0].write);
  EXPECT_EQ(backend.last.accesses()[1].data, average.view().data);
  EXPECT_TRUE(backend.last.accesses()[1].write);
}

TEST_F(StateQueueTest, LengthsAndPointersAreChecked) {
  Tensor a = ones(4), b = ones(5);
  float* const x = a.view().as<float>();
  expect_refused(update_async(backend, stream, {step, {.param = x, .g = x}, -1}), "n is -1");
  expect_refused(update_async(backend, stream, {step, {.g = x}, 4}), "block.param is null");
  expect_refused(update_async(backend, stream, {step, {.param = x}, 4}), "block.g is null");
  expect_refused(
      update_async(backend, stream, {step, {.layout = MasterLayout::bf16_split, .param = x, .g = x}, 4}),
      "block.master is null");
  expect_refused(update_async(backend, stream, {step, {.param = x, .g = x}, 4}), "block.m is null");
  const cpuopt::UpdateBlock block{.param = x, .m = {x, nullptr}, .v = {x, nullptr}, .g = x};
  cpuopt::UpdateBlock int8 = block;
  int8.states = StateFormat::int8;
  expect_refused(update_async(backend, stream, {step, int8, 4}), "block.m is null");
  const cpuopt::UpdateStep lamb = cpuopt::make_update_step({.optimizer = cpuopt::Optimizer::lamb});
  double sums[1] = {};
  expect_refused(lamb_partials_async(backend, stream, {lamb, block, 4, sums, nullptr}),
                 "direction_partials is null");
  expect_refused(lamb_apply_async(backend, stream, {lamb, block, 4, nullptr}), "trust is null");
  expect_refused(ema_async(backend, stream, {0.5f, block, 4}), "block.ema is null");
  cpuopt::UpdateBlock averaged = block;
  averaged.ema = x;
  expect_refused(ema_async(backend, stream, {0.0f, averaged, 4}), "weight is 0");
  expect_refused(accumulate_async(backend, stream, {a.view(), b.view()}), "g is f32 [5]");
  std::vector<double> partials(2);
  expect_refused(square_sum_partials_async(backend, stream, {a.view(), test::view(partials)}),
                 "partials is f64 [2]");
}

TEST_F(StateQueueTest, AFakeCudaBackendGetsNoHostKernel) {
  InlineBackend cuda(DeviceKind::cuda);
  Tensor acc = ones(8), g = ones(8);
  const Status status = accumulate_async(cuda, stream, {acc.view(), g.view()});
  // A build without CUDA has no kernel (`unsupported`); one with CUDA rejects this stream (`invalid`).
  EXPECT_TRUE(status.code() == Code::unsupported || status.code() == Code::invalid) << status.message();
  EXPECT_EQ(cuda.calls, 0);
}

}  // namespace
}  // namespace strata::state_kernels
