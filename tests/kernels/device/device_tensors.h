#pragma once

#include <cstdint>
#include <memory>

#include <gtest/gtest.h>

#include "support/op_test.h"

namespace strata::test {

/// What tests need that run a GPU's arithmetic on the host and compare it with the host's ops: tensors stored
/// as T.
template <class T>
class DeviceTensors : public ::testing::Test {
 protected:
  static Tensor in(Shape shape, std::uint64_t seed, double scale = 1.0) {
    return Tensor(shape, Values(seed).floats(shape.n_elems(), scale), dtype_of<T>);
  }
  static Tensor out(Shape shape) { return Tensor::unwritten(shape, dtype_of<T>); }
  static Tensor stat(std::int64_t n) { return Tensor::unwritten({n}); }
  static T* data(Tensor& tensor) { return tensor.view().template as<T>(); }
  static float* floats(Tensor& tensor) { return tensor.view().template as<float>(); }
  static void expect_same(const Tensor& got, const Tensor& want, const char* what) {
    EXPECT_EQ(differing_bits(got.values(), want.values()), 0u) << what;
  }
  const std::unique_ptr<ThreadPool> pool_ = test::pool();
};

}  // namespace strata::test
