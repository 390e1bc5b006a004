#pragma once

#include <cstdint>

#include <strata/kernels/values/scan_heads.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// The gates of the state scan (state_scan.h) of H heads, in f32:
///   step = log(1 + exp(dt + dt_bias)), but at least limits.low and at most limits.high
///   g = -exp(a_log) step
struct ScanGatesForwardArgs {
  TensorView dt;              ///< stored dtype [T, H]
  TensorView a_log, dt_bias;  ///< f32 [H]
  TensorView step, g;         ///< f32 [T, H], written
  StepLimits limits;
};
Status scan_gates_forward_async(Backend& backend, Stream& stream, const ScanGatesForwardArgs& args);
void scan_gates_forward_host(const ScanGatesForwardArgs& args, ThreadPool& pool);

/// The derivative, in which a step that a limit has replaced is a constant; sums over rows are taken in
/// blocks of rows that depend on T alone.
struct ScanGatesBackwardArgs {
  TensorView dt, a_log, dt_bias;  ///< as in the forward
  TensorView dstep, dg;           ///< f32 [T, H], or rank 0: zero
  TensorView ddt;                 ///< stored dtype [T, H], written; may be `dt`
  TensorView da_log, ddt_bias;    ///< f32 [H], written
  StepLimits limits;
  bool accumulate_da_log = false, accumulate_ddt_bias = false;
  BufferView workspace;  ///< scan_gates_backward_workspace_bytes(T, H), 4-aligned
};
std::size_t scan_gates_backward_workspace_bytes(std::int64_t rows, std::int64_t heads) noexcept;
Status scan_gates_backward_async(Backend& backend, Stream& stream, const ScanGatesBackwardArgs& args);
void scan_gates_backward_host(const ScanGatesBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
