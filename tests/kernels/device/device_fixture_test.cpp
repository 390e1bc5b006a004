// Tests DeviceFixture on a fake CUDA runtime: the addresses that a device op receives, and the results that
// are copied back.
#include "support/device_fixture.h"

#include <array>

#include <gtest/gtest-spi.h>

#include "support/fake_cudart.h"

namespace strata::kernels {
namespace {

struct Inner {
  TensorView x;
};
struct TwiceArgs {
  Inner inner;
  std::int64_t n = 0;
  TensorView y;
  BufferView absent;
};

void twice(const TwiceArgs& a) {
  for (std::int64_t i = 0; i < a.n; ++i) a.y.as<float>()[i] = 2 * a.inner.x.as<float>()[i];
}
void twice_host(const TwiceArgs& a, ThreadPool&) { twice(a); }

std::array<std::byte*, 2> seen;
Status twice_async(Backend&, Stream&, const TwiceArgs& a) {
  seen = {a.inner.x.data, a.y.data};
  EXPECT_EQ(a.absent.data, nullptr);
  twice(a);
  return {};
}
Status thrice_async(Backend&, Stream&, const TwiceArgs& a) {
  for (std::int64_t i = 0; i < a.n; ++i) a.y.as<float>()[i] = 3 * a.inner.x.as<float>()[i];
  return {};
}

class DeviceFixtureTest : public test::DeviceFixture<int> {
 protected:
  DType dtype() const override { return DType::f32; }
  TwiceArgs args() {
    const TensorView all = in({100}, 1);
    return {{{all.data + 4 * sizeof(float), {96}, DType::f32}}, 96, unwritten({96}, DType::f32), {}};
  }
};

TEST_P(DeviceFixtureTest, OpsGetDeviceAddressesAndResultsAreCopiedBack) {
  const TwiceArgs a = args();
  run_on_device(&twice_async, a);
  EXPECT_EQ(buffer_of(reinterpret_cast<std::uintptr_t>(seen[0])), nullptr) << "an address of the host";
  EXPECT_EQ(buffer_of(reinterpret_cast<std::uintptr_t>(seen[1])), nullptr) << "an address of the host";
  EXPECT_EQ(seen[0], memory_[0].device + 4 * sizeof(float));
  EXPECT_EQ(seen[1], memory_[1].device);
  EXPECT_EQ(a.y.as<float>()[95], 2 * a.inner.x.as<float>()[95]);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.y.data) % 256, 0u);
}

TEST_P(DeviceFixtureTest, DifferencesAreReported) {
  expect_same_bits<TwiceArgs>("twice", args(), &twice_host, &twice_async, {&TwiceArgs::y});
  EXPECT_NONFATAL_FAILURE(
      expect_same_bits<TwiceArgs>("thrice", args(), &twice_host, &thrice_async, {&TwiceArgs::y}),
      "thrice, output 0");
  EXPECT_NONFATAL_FAILURE(
      expect_close<TwiceArgs>("thrice", args(), &twice_host, &thrice_async, &TwiceArgs::y, 0.4), "thrice");
}

INSTANTIATE_TEST_SUITE_P(FakeCuda, DeviceFixtureTest, ::testing::Values(0));

}  // namespace
}  // namespace strata::kernels
