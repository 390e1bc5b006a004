// An optimizer step on the GPU has the bits of the host's, for every optimizer, layout and format. Skipped
// without a GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <strata/runtime/backend/cuda_backend.h>
#include <strata/runtime/str.h>

#include "cpuopt/optimizer_cases.h"
#include "state_kernels/step_by_ops.h"

namespace strata::state_kernels {
namespace {

using cpuopt::MasterLayout;
using cpuopt::Moment;
using cpuopt::RoundingNoise;
using cpuopt::UpdateBlock;
using cpuopt::test::StoredTensor;

void ok(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

/// A copy of host memory on the device; copy_back() returns it.
class DeviceCopy {
 public:
  DeviceCopy(void* host, std::size_t bytes) : host_(host), bytes_(host == nullptr ? 0 : bytes) {
    if (bytes_ == 0) return;
    ok(cudaMalloc(&data_, bytes_));
    ok(cudaMemcpy(data_, host_, bytes_, cudaMemcpyHostToDevice));
  }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;
  ~DeviceCopy() { (void)cudaFree(data_); }
  void* data() const { return data_; }
  void copy_back() const {
    if (bytes_ > 0) ok(cudaMemcpy(host_, data_, bytes_, cudaMemcpyDeviceToHost));
  }

 private:
  void* host_;
  std::size_t bytes_;
  void* data_ = nullptr;
};

/// Applies one step to `tensor` on the device.
void step_on_device(Backend& backend, Stream& stream, const cpuopt::OptimizerParams& params,
                    StoredTensor& tensor, std::vector<float>& g, RoundingNoise noise) {
  const auto n = std::ssize(g), n_partials = simd::norm_partial_count(n);
  const auto elems = static_cast<std::size_t>(n);
  const UpdateBlock host = tensor.block();
  const std::size_t blocks = (elems + kMomentBlock - 1) / kMomentBlock;
  const DeviceCopy param(host.param, elems * cpuopt::param_bytes(host.layout)),
      master(host.master, elems * cpuopt::master_bytes(host.layout)),
      m(host.m.values, elems * moment_value_bytes(host.states)),
      m_scales(host.m.scales, blocks * sizeof(float)),
      v(host.v.values, elems * moment_value_bytes(host.states)),
      v_scales(host.v.scales, blocks * sizeof(float)), gradient(g.data(), elems * sizeof(float));
  UpdateBlock b = host;
  b.param = param.data();
  b.master = master.data();
  b.m = {m.data(), static_cast<float*>(m_scales.data())};
  b.v = {v.data(), static_cast<float*>(v_scales.data())};
  b.g = gradient.data();
  b.grad = DType::f32;
  // Norms are in pinned memory, as in a training run.
  const Buffer pinned = must(backend.allocate(
      MemoryKind::pinned, static_cast<std::size_t>(2 * n_partials) * sizeof(double) + sizeof(float)));
  auto* const norms = reinterpret_cast<double*>(pinned.view().data);
  test::step_by_ops(backend, stream, params, b, n, noise,
                    {norms, norms + n_partials, reinterpret_cast<float*>(norms + 2 * n_partials)});
  for (const DeviceCopy* copy : {&param, &master, &m, &m_scales, &v, &v_scales}) copy->copy_back();
}

TEST(DeviceUpdateTest, HasTheBitsOfTheHostForEveryOptimizerLayoutAndFormat) {
  if (!cuda_available()) GTEST_SKIP() << cuda_status();
  const auto pool = must(ThreadPool::create(2));
  const auto backend = must(create_cuda_backend({}, *pool));
  Stream stream = must(backend->create_stream(StreamRole::compute));
  constexpr std::int64_t n = 3 * 4096 + 77;
  for (const cpuopt::OptimizerParams& each : cpuopt::test::every_optimizer())
    for (const MasterLayout layout :
         {MasterLayout::f32, MasterLayout::bf16_split, MasterLayout::bf16_shadow, MasterLayout::f16_shadow})
      for (const StateFormat states : {StateFormat::fp32, StateFormat::bf16, StateFormat::int8}) {
        const std::vector<float> start = test::Values(1).floats(n);
        StoredTensor host(each, layout, states, start), device(each, layout, states, start);
        cpuopt::OptimizerParams params = each;
        for (params.step = 1; params.step <= 3; ++params.step) {
          std::vector<float> g = test::Values(100 + static_cast<std::uint64_t>(params.step)).floats(n, 0.1);
          host.step(params.step, g, DType::f32, n);
          step_on_device(*backend, stream, params, device, g, cpuopt::rounding_noise(17, 3, params.step, 0));
        }
        EXPECT_EQ(device.differing_bits_from(host), 0u)
            << cpuopt::test::name_of(each) << ", layout " << static_cast<int>(layout) << ", "
            << to_string(states);
      }
}

TEST(DeviceUpdateTest, TheMovingAverageHasTheBitsOfTheHost) {
  if (!cuda_available()) GTEST_SKIP() << cuda_status();
  const auto pool = must(ThreadPool::create(2));
  const auto backend = must(create_cuda_backend({}, *pool));
  Stream stream = must(backend->create_stream(StreamRole::compute));
  constexpr std::int64_t n = 3 * 4096 + 77;
  const std::vector<float> masters = test::Values(1).floats(n), before = test::Values(2).floats(n);
  for (const MasterLayout layout :
       {MasterLayout::f32, MasterLayout::bf16_split, MasterLayout::bf16_shadow, MasterLayout::f16_shadow})
    for (const float weight : {0.001f, 1.0f}) {
      StoredTensor stored({}, layout, StateFormat::fp32, masters);
      UpdateBlock block = stored.block();
      std::vector<float> want = before, got = before;
      block.ema = want.data();
      cpuopt::update_ema_block(weight, block, n);
      const auto elems = static_cast<std::size_t>(n);
      const DeviceCopy param(block.param, elems * cpuopt::param_bytes(layout)),
          master(block.master, elems * cpuopt::master_bytes(layout)),
          average(got.data(), elems * sizeof(float));
      block.param = param.data();
      block.master = master.data();
      block.ema = static_cast<float*>(average.data());
      must(ema_async(*backend, stream, {weight, block, n}));
      must(backend->synchronize(stream));
      average.copy_back();
      EXPECT_EQ(test::differing_bits(got, want), 0u) << static_cast<int>(layout) << ", weight " << weight;
    }
}

}  // namespace
}  // namespace strata::state_kernels
