#pragma once

#include <cstdint>
#include <span>

#include <strata/cpuopt/math/adamw.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

namespace strata::cpuopt {

/// Hyper-parameters of one AdamW step. A plain value: rides in queued work.
struct AdamWParams {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;  ///< decoupled: the parameter shrinks by lr * weight_decay
  std::int64_t step = 1;      ///< counts from 1
  double grad_factor = 1.0;   ///< unscaling and clipping in one: multiplies every gradient, rounded to f32
};

/// Errors: `invalid` if step < 1, a beta lies outside [0, 1), eps is not above 0, or another number is not
/// finite.
Status validate(const AdamWParams& params);

/// The step's constants: computed in f64 without pow (squarings in a fixed order), each rounded once to f32.
AdamWScalars<float> adamw_scalars(const AdamWParams& params) noexcept;

/// One AdamW step in place over a flat range of any length and alignment, in one pass over memory.
/// Elementwise: any split of a range gives the same bits. Not threaded: callers hand disjoint blocks to their
/// threads. NaN and infinity pass through; the gradient norm is what finds them. Kingma & Ba 2015, Alg. 1;
/// decoupled decay, Loshchilov & Hutter 2019, Alg. 2. Errors: `invalid` as validate(), or if the lengths
/// differ.
Status adamw_update(const AdamWParams& params, std::span<float> p, std::span<const float> g,
                    std::span<float> m, std::span<float> v);
/// Parameters, their states and their gradient as they lie in memory, n elements each.
struct AdamWBlock {
  DType compute = DType::f32;  ///< of `param`
  DType grad = DType::f32;     ///< of `g`: f32, or as compute
  void* param = nullptr;       ///< f32: the master itself; bf16: its upper half; f16: the master rounded
  void* master = nullptr;      ///< f32: unused; bf16: u16, the lower half (math/master.h); f16: f32
  float* m = nullptr;
  float* v = nullptr;
  const void* g = nullptr;
};
/// The same as adamw_update() after validation, for blocks of one step, `grad_factor` already rounded: the
/// master and the moments have the same bits whatever the format.
void adamw_update_block(const AdamWScalars<float>& scalars, float grad_factor, const AdamWBlock& block,
                        std::int64_t n) noexcept;

/// Where a master of n elements goes or comes from: `param` and `master` as in AdamWBlock.
void split_masters(std::span<const float> from, DType compute, void* param, void* master) noexcept;
void join_masters(DType compute, const void* param, const void* master, std::span<float> into) noexcept;

/// acc += g, or acc = g where `first`, elementwise; `g` has acc.size() values of f32, bf16 or f16.
void accumulate(std::span<float> acc, DType dtype, const void* g, bool first) noexcept;

}  // namespace strata::cpuopt
