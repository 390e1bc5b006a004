// Tests what the *_async functions of the recurrent ops do besides computing (see queue_test.cpp).
#include <strata/kernels/recurrent/causal_conv.h>
#include <strata/kernels/recurrent/delta_gates.h>
#include <strata/kernels/recurrent/delta_rule.h>
#include <strata/kernels/recurrent/gated_rmsnorm.h>
#include <strata/kernels/recurrent/scan_gates.h>
#include <strata/kernels/recurrent/state_scan.h>
#include <strata/runtime/memory/alloc_counter.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

/// The recurrent ops of a layer, forward and backward, and with states.
class RecurrentLayer {
 public:
  explicit RecurrentLayer(DType dtype) : x({rows, width}, Values(1).floats(rows * width), dtype) {}

  void run(Backend& backend, Stream& stream) {
    must(causal_conv_forward_async(backend, stream,
                                   {x.view(), taps.view(), bias.view(), {}, qkv.view(), heads.seq, true}));
    must(delta_gates_forward_async(backend, stream,
                                   {ba.view(), a_log.view(), a_log.view(), g.view(), beta.view()}));
    must(delta_rule_forward_async(backend, stream,
                                  {.qkv = qkv.view(),
                                   .g = g.view(),
                                   .beta = beta.view(),
                                   .out = out.view(),
                                   .last = states.view(),
                                   .heads = heads,
                                   .workspace = space.view()}));
    must(gated_rmsnorm_forward_async(backend, stream,
                                     {out.view(), z.view(), weight.view(), y.view(), rstd.view(), 1e-6f}));
    must(gated_rmsnorm_backward_async(backend, stream,
                                      {.x = out.view(),
                                       .z = z.view(),
                                       .weight = weight.view(),
                                       .rstd = rstd.view(),
                                       .dy = y.view(),
                                       .dx = y.view(),
                                       .dz = dz.view(),
                                       .dweight = dweight.view(),
                                       .workspace = space.view()}));
    must(delta_rule_backward_async(backend, stream,
                                   {qkv.view(),
                                    g.view(),
                                    beta.view(),
                                    {},
                                    y.view(),
                                    dqkv.view(),
                                    dg.view(),
                                    dbeta.view(),
                                    heads,
                                    space.view()}));
    must(delta_gates_backward_async(backend, stream,
                                    {.ba = ba.view(),
                                     .a_log = a_log.view(),
                                     .dt_bias = a_log.view(),
                                     .dg = dg.view(),
                                     .dbeta = dbeta.view(),
                                     .dba = dba.view(),
                                     .da_log = da_log.view(),
                                     .ddt_bias = ddt_bias.view(),
                                     .workspace = space.view()}));
    must(causal_conv_backward_async(backend, stream,
                                    {.x = x.view(),
                                     .weight = taps.view(),
                                     .bias = bias.view(),
                                     .dy = dqkv.view(),
                                     .dx = dx.view(),
                                     .dweight = dtaps.view(),
                                     .dbias = dbias.view(),
                                     .seq = heads.seq,
                                     .silu = true,
                                     .workspace = space.view()}));
    must(cached_causal_conv_async(backend, stream,
                                  {x.view(), taps.view(), bias.view(), test::view(positions),
                                   test::view(slots), kept.view(), qkv.view(), true}));
    must(cached_delta_rule_async(backend, stream,
                                 {qkv.view(), g.view(), beta.view(), test::view(positions), test::view(slots),
                                  state.view(), out.view(), heads, space.view()}));
  }

  static constexpr DeltaHeads heads = {
      .key_heads = 1, .value_heads = 2, .key_dim = 8, .value_dim = 12, .seq = 70};
  static constexpr std::int64_t rows = 140, width = 40, n = 24;
  Tensor x, qkv = Tensor::unwritten({rows, width}, x.dtype()), dqkv = qkv, dx = qkv,
            taps{{width, 4}, Values(2).floats(width * 4), x.dtype()}, dtaps = taps,
            bias{{width}, Values(3).floats(width), x.dtype()}, dbias = bias,
            ba{{rows, 4}, Values(4).floats(rows * 4), x.dtype()}, dba = ba, a_log{{2}, {0.5f, -0.5f}},
            da_log = a_log, ddt_bias = a_log, g = Tensor::unwritten({rows, 2}), beta = g, dg = g, dbeta = g,
            out = Tensor::unwritten({rows, n}, x.dtype()), y = out, dz = out,
            z{{rows, n}, Values(5).floats(rows*n), x.dtype()}, weight{{12}, Values(6).floats(12), x.dtype()},
            dweight = weight, rstd = Tensor::unwritten({rows * 2}), states = Tensor::unwritten({2, 2, 8, 12}),
            state = Tensor::unwritten({2, 1, delta_state_elems(heads)}),
            kept = Tensor::unwritten({2, 3, width}, x.dtype());
  std::vector<std::int32_t> positions = counted(), slots = halves();
  test::Workspace space{1 << 20};

 private:
  static std::vector<std::int32_t> counted() {
    std::vector<std::int32_t> of;
    for (std::int32_t t = 0; t < rows; ++t) of.push_back(t % heads.seq);
    return of;
  }
  static std::vector<std::int32_t> halves() {
    std::vector<std::int32_t> of;
    for (std::int32_t t = 0; t < rows; ++t) of.push_back(t / heads.seq);
    return of;
  }
};

/// The ops of a state scan, forward and backward, and with states.
class ScanLayer {
 public:
  explicit ScanLayer(DType dtype) : xbc({rows, width}, Values(1).floats(rows * width), dtype) {}

  void run(Backend& backend, Stream& stream) {
    must(scan_gates_forward_async(backend, stream,
                                  {dt.view(), a_log.view(), a_log.view(), step.view(), g.view(), limits}));
    must(state_scan_forward_async(backend, stream,
                                  {.xbc = xbc.view(),
                                   .step = step.view(),
                                   .g = g.view(),
                                   .d = a_log.view(),
                                   .out = out.view(),
                                   .last = states.view(),
                                   .heads = heads,
                                   .workspace = space.view()}));
    must(state_scan_backward_async(backend, stream,
                                   {.xbc = xbc.view(),
                                    .step = step.view(),
                                    .g = g.view(),
                                    .d = a_log.view(),
                                    .dout = out.view(),
                                    .dxbc = dxbc.view(),
                                    .dstep = dstep.view(),
                                    .dg = dg.view(),
                                    .dd = dd.view(),
                                    .heads = heads,
                                    .workspace = space.view()}));
    must(scan_gates_backward_async(backend, stream,
                                   {.dt = dt.view(),
                                    .a_log = a_log.view(),
                                    .dt_bias = a_log.view(),
                                    .dstep = dstep.view(),
                                    .dg = dg.view(),
                                    .ddt = ddt.view(),
                                    .da_log = dd.view(),
                                    .ddt_bias = ddt_bias.view(),
                                    .limits = limits,
                                    .workspace = space.view()}));
    must(cached_state_scan_async(backend, stream,
                                 {xbc.view(), step.view(), g.view(), a_log.view(), test::view(positions),
                                  test::view(slots), state.view(), out.view(), heads, space.view()}));
  }

  static constexpr ScanHeads heads = {.groups = 1, .heads = 2, .state_dim = 8, .head_dim = 12, .seq = 70};
  static constexpr StepLimits limits = {.low = 0.1f};
  static constexpr std::int64_t rows = 140, width = 40;
  Tensor xbc, dxbc = xbc, dt{{rows, 2}, Values(4).floats(rows * 2), xbc.dtype()}, ddt = dt,
              a_log{{2}, {0.5f, -0.5f}}, dd = a_log, ddt_bias = a_log, step = Tensor::unwritten({rows, 2}),
              g = step, dstep = step, dg = step, out = Tensor::unwritten({rows, 24}, xbc.dtype()),
              states = Tensor::unwritten({2, 2, 8, 12}),
              state = Tensor::unwritten({2, 1, scan_state_elems(heads)});
  std::vector<std::int32_t> positions = RecurrentLayer(DType::f32).positions,
                            slots = RecurrentLayer(DType::f32).slots;
  test::Workspace space{1 << 20};
};

/// Runs a layer a second time, and counts what it allocates.
template <class Layer>
void expect_no_allocations() {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Layer layer(dtype);
    layer.run(backend, stream);
    ASSERT_TRUE(AllocCounter::hooked());
    const std::uint64_t before = AllocCounter::count();
    AllocCounter::set_armed(true);
    layer.run(backend, stream);
    AllocCounter::set_armed(false);
    EXPECT_EQ(AllocCounter::count() - before, 0u) << to_string(dtype);
  }
}

TEST(RecurrentQueueTest, OpsDoNotAllocate) { expect_no_allocations<RecurrentLayer>(); }
TEST(RecurrentQueueTest, OpsOfTheStateScanDoNotAllocate) { expect_no_allocations<ScanLayer>(); }

TEST(RecurrentQueueTest, StatesAreDeclaredAsWritten) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  RecurrentLayer layer(DType::f32);
  layer.run(backend, stream);  // the last op is the cached delta rule
  const auto accesses = backend.last.accesses();
  ASSERT_EQ(accesses.size(), 8u);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(accesses[i].write, i >= 5) << i;
  EXPECT_EQ(accesses[5].data, layer.state.view().data);
}

TEST(RecurrentQueueTest, StatesOfScansAreDeclaredAsWritten) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  ScanLayer layer(DType::f32);
  layer.run(backend, stream);  // the last op is the cached scan
  const auto accesses = backend.last.accesses();
  ASSERT_EQ(accesses.size(), 9u);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(accesses[i].write, i >= 6) << i;
  EXPECT_EQ(accesses[6].data, layer.state.view().data);
}

TEST(RecurrentQueueTest, AFakeCudaBackendGetsNoHostKernel) {
  test::InlineBackend cuda(DeviceKind::cuda);
  Stream stream = must(cuda.create_stream(StreamRole::compute));
  RecurrentLayer layer(DType::f32);
  const Status status = delta_gates_forward_async(
      cuda, stream,
      {layer.ba.view(), layer.a_log.view(), layer.a_log.view(), layer.g.view(), layer.beta.view()});
  EXPECT_TRUE(status.code() == Code::unsupported || status.code() == Code::invalid) << status.message();
  EXPECT_EQ(cuda.calls, 0);
}

}  // namespace
}  // namespace strata::kernels
