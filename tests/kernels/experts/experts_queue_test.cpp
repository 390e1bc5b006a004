// Tests what the *_async functions of the ops of experts do besides computing (see queue_test.cpp).
#include <strata/kernels/experts/biases.h>
#include <strata/kernels/experts/expert_linear.h>
#include <strata/kernels/experts/gate.h>
#include <strata/kernels/experts/router.h>
#include <strata/kernels/experts/router_losses.h>
#include <strata/kernels/experts/rows.h>
#include <strata/runtime/memory/alloc_counter.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

/// A layer of experts, forward and backward.
class ExpertLayer {
 public:
  explicit ExpertLayer(DType dtype)
      : x({tokens, h}, Values(1).floats(tokens * h), dtype),
        up({experts, 2 * f, h}, Values(2).floats(experts * 2 * f * h), dtype),
        down({experts, h, f}, Values(3).floats(experts * h * f), dtype) {}

  void run(Backend& backend, Stream& stream) {
    must(router_top_k_async(backend, stream,
                            {logits.view(), {}, choices(), weights.view(), {.renormalize = true}}));
    must(route_rows_async(backend, stream,
                          {choices(), test::view(offsets), test::view(source), test::view(position)}));
    must(gather_rows_async(backend, stream, {x.view(), test::view(source), xs.view()}));
    must(expert_linear_forward_async(
        backend, stream, {xs.view(), up.view(), {}, test::view(offsets), gates.view(), 0, space.view()}));
    must(expert_gate_forward_async(backend, stream,
                                   {gates.view(), weights.view(), test::view(source), a.view(), {}}));
    must(expert_linear_forward_async(
        backend, stream, {a.view(), down.view(), {}, test::view(offsets), ys.view(), 0, space.view()}));
    must(sum_rows_async(backend, stream, {ys.view(), test::view(position), x.view(), y.view()}));
    must(expert_linear_backward_input_async(
        backend, stream, {ys.view(), down.view(), test::view(offsets), a.view(), 0, space.view()}));
    must(expert_linear_backward_weight_async(backend, stream,
                                             {gates.view(), xs.view(), test::view(offsets), dup.view()}));
    must(expert_linear_backward_bias_async(backend, stream, {gates.view(), test::view(offsets), db.view()}));
    must(expert_gate_backward_async(
        backend, stream,
        {gates.view(), weights.view(), test::view(source), a.view(), gates.view(), dweights.view(), {}}));
    must(router_bias_async(backend, stream, {logits.view(), of_router.view(), logits.view()}));
    must(expert_bias_forward_async(backend, stream, {of_down.view(), weights.view(), choices(), y.view()}));
    must(expert_bias_backward_async(
        backend, stream,
        {y.view(), weights.view(), test::view(offsets), test::view(source), of_down.view()}));
    must(expert_bias_backward_weights_async(backend, stream,
                                            {y.view(), of_down.view(), choices(), dweights.view()}));
    must(router_top_k_backward_async(backend, stream,
                                     {logits.view(), choices(), dweights.view(), dlogits.view(), {}}));
    must(router_sums_async(backend, stream,
                           {logits.view(), test::view(offsets), {}, sums.view(), space.view()}));
    must(router_losses_async(backend, stream, {sums.view(), zero.view(), losses.view(), tokens}));
    must(router_losses_backward_async(backend, stream, {sums.view(), {}, dsums.view(), tokens, 0.5f, 0.5f}));
    must(router_sums_backward_async(backend, stream, {logits.view(), dsums.view(), dlogits.view()}));
  }

  static constexpr std::int64_t tokens = 100, experts = 8, chosen = 2, rows = tokens * chosen, h = 60, f = 40;
  Tensor x, up, down;
  Tensor logits{{tokens, experts}, Values(4).floats(tokens*experts)},
      weights = Tensor::unwritten({tokens, chosen}), dweights = weights, dlogits = logits;
  std::vector<std::int32_t> numbers = std::vector<std::int32_t>(rows), source = numbers, position = numbers,
                            offsets = std::vector<std::int32_t>(experts + 1);
  Tensor xs = Tensor::unwritten({rows, h}, x.dtype()), gates = Tensor::unwritten({rows, 2 * f}, x.dtype()),
         a = Tensor::unwritten({rows, f}, x.dtype()), ys = xs, y = x, dup = up,
         db = Tensor::unwritten({experts, 2 * f}, x.dtype());
  Tensor of_router{{experts}, Values(5).floats(experts)},
      of_down{{experts, h}, Values(6).floats(experts*h), x.dtype()};
  Tensor sums = Tensor::unwritten({2 * experts + 1}), dsums = sums, zero = Tensor::unwritten({1}),
         losses = Tensor::unwritten({2});
  test::Workspace space{1 << 17};

  TensorView choices() {
    TensorView view = test::view(numbers);
    view.shape = {tokens, chosen};
    return view;
  }
};

TEST(ExpertsQueueTest, OpsDoNotAllocate) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    ExpertLayer layer(dtype);
    layer.run(backend, stream);
    ASSERT_TRUE(AllocCounter::hooked());
    const std::uint64_t before = AllocCounter::count();
    AllocCounter::set_armed(true);
    layer.run(backend, stream);
    AllocCounter::set_armed(false);
    EXPECT_EQ(AllocCounter::count() - before, 0u) << to_string(dtype);
  }
}

TEST(ExpertsQueueTest, ReadsWritesAndWorkspacesAreDeclared) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  ExpertLayer layer(DType::f32);
  layer.run(backend, stream);
  must(expert_linear_forward_async(backend, stream,
                                   {layer.xs.view(),
                                    layer.up.view(),
                                    {},
                                    test::view(layer.offsets),
                                    layer.gates.view(),
                                    0,
                                    layer.space.view()}));
  const auto accesses = backend.last.accesses();
  ASSERT_EQ(accesses.size(), 5u);
  EXPECT_EQ(accesses[2].data, test::view(layer.offsets).data);
  EXPECT_FALSE(accesses[2].write);
  EXPECT_EQ(accesses[3].data, layer.gates.view().data);
  EXPECT_TRUE(accesses[3].write);
  EXPECT_TRUE(accesses[4].write);
  must(router_top_k_async(backend, stream,
                          {layer.logits.view(), {}, layer.choices(), layer.weights.view(), {}}));
  ASSERT_EQ(backend.last.accesses().size(), 3u);
  EXPECT_FALSE(backend.last.accesses()[0].write);
  EXPECT_TRUE(backend.last.accesses()[1].write);
  EXPECT_TRUE(backend.last.accesses()[2].write);
}

TEST(ExpertsQueueTest, AFakeCudaBackendGetsNoHostKernel) {
  test::InlineBackend cuda(DeviceKind::cuda);
  Stream stream = must(cuda.create_stream(StreamRole::compute));
  ExpertLayer layer(DType::f32);
  const Status status =
      gather_rows_async(cuda, stream, {layer.x.view(), test::view(layer.source), layer.xs.view()});
  EXPECT_TRUE(status.code() == Code::unsupported || status.code() == Code::invalid) << status.message();
  EXPECT_EQ(cuda.calls, 0);
}

}  // namespace
}  // namespace strata::kernels
