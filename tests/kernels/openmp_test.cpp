#include <omp.h>

#include <strata/kernels/linear.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;

std::vector<float> gemm(int openmp_threads) {
  omp_set_num_threads(openmp_threads);
  Tensor x({128, 1024}, test::Values(1).floats(128 * 1024)),
      w({128, 1024}, test::Values(2).floats(128 * 1024));
  Tensor y = Tensor::unwritten({128, 128});
  linear_forward_host({x.view(), w.view(), {}, y.view()}, *test::pool(1));
  return y.values();
}

// A shape for which oneDNN's bits differ between one and two threads.
TEST(OpenMpTest, TheCallersOpenMpSettingChangesNoBitAndIsRestored) {
  const auto want = gemm(1);
  EXPECT_EQ(test::differing_bits(gemm(2), want), 0u);
  EXPECT_EQ(omp_get_max_threads(), 2);
  omp_set_num_threads(1);
}

}  // namespace
}  // namespace strata::kernels
