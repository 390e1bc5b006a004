// Runs the kernels of find_basis and gradient_outside on the host, in the order in which CUDA has them.

#include <gtest/gtest.h>

#include <strata/dispatch/cuda/emulation/half_warp.h>
#include <strata/kernels/subspace.h>

#include "cuda/subspace/basis_steps.h"
#include "dtype_dispatch.h"
#include "gemm/gemm_tiled.h"
#include "kernels/subspace/spectra.h"

namespace strata::kernels {
namespace {

using test::BasisProblem;
using test::FoundBasis;
using test::KnownMatrix;
using test::Tensor;
using test::Values;

/// Rows and elements run backwards, because results must not depend on their order.
struct EmulatedDevice {
  ThreadPool& pool;
  template <class F>
  Status rows(std::int64_t n, const F& f) const {
    while (n-- > 0) f(dispatch::EmulatedHalfWarp{}, n);
    return {};
  }
  template <class F>
  Status elements(std::int64_t n, const F& f) const {
    while (n-- > 0) f(n);
    return {};
  }
  Status multiply(const detail::Gemm& gemm) const {
    detail::gemm_tiled(gemm, nullptr, pool);
    return {};
  }
  template <class Body>
  Status dispatch(DType dtype, const Body& body) const {
    Status status;
    detail::dispatch_dtype(dtype, [&](auto type) { status = body(type); });
    return status;
  }
};

FoundBasis find_on_device(const BasisProblem& p, const std::vector<float>& g,
                          const std::vector<float>& previous, DType of_previous = DType::f32) {
  Tensor matrix({p.rows, p.columns}, g, p.dtype), before(p.basis_shape(), previous, of_previous),
      basis = Tensor::unwritten(p.basis_shape()), energy = Tensor::unwritten({1});
  test::Workspace space(find_basis_workspace_bytes(p.parts(), p.columns, p.side, p.dtype));
  const auto pool = test::pool();
  EXPECT_TRUE(detail::find_bases(EmulatedDevice{*pool}, {matrix.view(), before.view(), basis.view(),
                                                         energy.view(), space.view(), p.parts(), p.side})
                  .is_ok());
  return {basis.values(), energy.values()[0]};
}

const BasisProblem kDeviceProblems[] = {
    {60, 40, 8, SubspaceSide::right},  {40, 60, 8, SubspaceSide::left},
    {24, 70, 10, SubspaceSide::right}, {20, 12, 12, SubspaceSide::right},
    {33, 33, 1, SubspaceSide::left},   {60, 40, 8, SubspaceSide::right, SvdMethod::subspace, DType::bf16}};

TEST(DeviceSubspaceTest, BasesAreOrthonormalAndCaptureTheEnergyOfTheLeadingVectors) {
  for (const BasisProblem& p : kDeviceProblems)
    for (const test::Spectrum& spectrum : test::kSpectra) {
      const KnownMatrix m = test::known_matrix(p.rows, p.columns, spectrum.value);
      const FoundBasis found = find_on_device(p, m.values, p.no_basis());
      const double captured = test::energy_of(p, m.values, found.basis), all = test::square_sum(m.values);
      const std::string name = str(spectrum.name, " ", p.rows, " x ", p.columns, ", rank ", p.rank);
      EXPECT_LE(test::orthonormality_error(p, found.basis), 2e-6) << name;
      EXPECT_GE(captured, 0.99 * m.top_energy(p.rank)) << name;
      EXPECT_NEAR(static_cast<double>(found.energy), captured / all, 0.01) << name;
      EXPECT_TRUE(test::has_signs_of_a_basis(p, found.basis)) << name;
    }
}

TEST(DeviceSubspaceTest, OfAZeroMatrixThePreviousBasisStays) {
  const BasisProblem& p = kDeviceProblems[1];
  const std::vector<float> zeros(static_cast<std::size_t>(p.rows * p.columns)),
      noise = Values(2).floats(p.rows * p.columns);
  const FoundBasis before = find_on_device(p, noise, p.no_basis()),
                   after = find_on_device(p, zeros, before.basis),
                   first = find_on_device(p, zeros, p.no_basis());
  EXPECT_LE(test::relative_error(after.basis, before.basis), 1e-5);
  EXPECT_EQ(after.energy, 1.0f);
  EXPECT_LE(test::orthonormality_error(p, first.basis), 2e-6);
}

// Products with the previous vectors stay in their subspace, where the gradient has little.
TEST(DeviceSubspaceTest, DirectionsOrthogonalToThePreviousBasisAreFound) {
  const BasisProblem p{30, 20, 4, SubspaceSide::right};
  std::vector<float> previous = p.no_basis(), g(600);
  for (std::int64_t j = 0; j < p.rank; ++j) previous[p.index(j, j)] = 1.0f;
  for (std::size_t j = 0; j < 4; ++j) g[j * 20 + j] = 0.01f;
  for (std::size_t i = 4; i < 30; ++i)
    for (std::size_t k = 10; k < 20; ++k) g[i * 20 + k] = static_cast<float>((i % 3 + 1) * (k % 4 + 1));
  EXPECT_GE(test::energy_of(p, g, find_on_device(p, g, previous, DType::bf16).basis),
            0.999 * test::square_sum(g));
}

TEST(DeviceSubspaceTest, ANaNMakesTheBasisNaN) {
  const BasisProblem& p = kDeviceProblems[0];
  std::vector<float> g = Values(1).floats(p.rows * p.columns);
  g[77] = std::nanf("");
  const FoundBasis found = find_on_device(p, g, p.no_basis());
  for (const float x : found.basis) EXPECT_TRUE(std::isnan(x));
  EXPECT_TRUE(std::isnan(found.energy));
}

TEST(DeviceSubspaceTest, WhatIsOutsideHasTheBitsOfTheHost) {
  const LoraParts parts = {{{{0, 20, 3}, {25, 11, 5}}}, 2};
  const auto pool = test::pool();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const SubspaceSide side : {SubspaceSide::right, SubspaceSide::left}) {
      const std::int64_t n = side == SubspaceSide::right ? 20 * 3 + 11 * 5 : 8 * 1500;
      Tensor g({40, 1500}, Values(1).floats(40 * 1500), dtype), r({n}, Values(2).floats(n, 0.5)),
          host = Tensor::unwritten({1}), device = Tensor::unwritten({1});
      test::Workspace space(gradient_outside_workspace_bytes(parts, 1500, side));
      gradient_outside_host({g.view(), r.view(), host.view(), space.view(), parts, side}, *pool);
      EXPECT_TRUE(detail::find_outside(EmulatedDevice{*pool},
                                       {g.view(), r.view(), device.view(), space.view(), parts, side})
                      .is_ok());
      EXPECT_EQ(test::differing_bits(host.values(), device.values()), 0u);
    }
}

}  // namespace
}  // namespace strata::kernels
