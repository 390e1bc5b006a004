#pragma once

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// All tensors of an op have the same dtype (f32, bf16 or f16; see embedding.h) and, except in SwiGLU, the
// same number of elements. An output may be one of the inputs.

/// y = gelu(x), tanh form (Hendrycks & Gimpel 2016).
struct GeluForwardArgs {
  TensorView x;
  TensorView y;  ///< written
};
Status gelu_forward_async(Backend& backend, Stream& stream, const GeluForwardArgs& args);
void gelu_forward_host(const GeluForwardArgs& args, ThreadPool& pool);

/// dx = dy * gelu'(x).
struct GeluBackwardArgs {
  TensorView x;
  TensorView dy;
  TensorView dx;  ///< written
};
Status gelu_backward_async(Backend& backend, Stream& stream, const GeluBackwardArgs& args);
void gelu_backward_host(const GeluBackwardArgs& args, ThreadPool& pool);

/// y = max(x, 0), or its square (So et al. 2021, "Primer"); a NaN stays NaN.
struct ReluForwardArgs {
  TensorView x;
  TensorView y;  ///< written
  bool squared = false;
};
Status relu_forward_async(Backend& backend, Stream& stream, const ReluForwardArgs& args);
void relu_forward_host(const ReluForwardArgs& args, ThreadPool& pool);

/// dx = x > 0 ? dy : 0, or x > 0 ? dy (2 x) : 0.
struct ReluBackwardArgs {
  TensorView x;
  TensorView dy;
  TensorView dx;  ///< written
  bool squared = false;
};
Status relu_backward_async(Backend& backend, Stream& stream, const ReluBackwardArgs& args);
void relu_backward_host(const ReluBackwardArgs& args, ThreadPool& pool);

/// y = silu(gate) * up with silu(x) = x / (1 + e^-x), or GeGLU, gelu(gate) * up (Shazeer 2020).
struct SwigluForwardArgs {
  TensorView gate_up;  ///< stored dtype [..., 2f], T rows: gate | up
  TensorView y;        ///< stored dtype [..., f], T rows, written
  bool gelu = false;   ///< GeGLU with GELU's tanh form
};
Status swiglu_forward_async(Backend& backend, Stream& stream, const SwigluForwardArgs& args);
void swiglu_forward_host(const SwigluForwardArgs& args, ThreadPool& pool);

struct SwigluBackwardArgs {
  TensorView gate_up;   ///< from the forward
  TensorView dy;        ///< stored dtype [..., f], T rows
  TensorView dgate_up;  ///< as gate_up, written; may be gate_up
  bool gelu = false;
};
Status swiglu_backward_async(Backend& backend, Stream& stream, const SwigluBackwardArgs& args);
void swiglu_backward_host(const SwigluBackwardArgs& args, ThreadPool& pool);

/// y = x * sigmoid(gate), or x * silu(gate).
struct SigmoidGateForwardArgs {
  TensorView x;
  TensorView gate;
  TensorView y;  ///< written
  bool silu = false;
};
Status sigmoid_gate_forward_async(Backend& backend, Stream& stream, const SigmoidGateForwardArgs& args);
void sigmoid_gate_forward_host(const SigmoidGateForwardArgs& args, ThreadPool& pool);

/// dx = dy * sigmoid(gate), dgate = dy * x * sigmoid'(gate), or the same with silu.
struct SigmoidGateBackwardArgs {
  TensorView x;
  TensorView gate;
  TensorView dy;
  TensorView dx;     ///< written; may be x or dy
  TensorView dgate;  ///< written; may be gate, and no other operand
  bool silu = false;
};
Status sigmoid_gate_backward_async(Backend& backend, Stream& stream, const SigmoidGateBackwardArgs& args);
void sigmoid_gate_backward_host(const SigmoidGateBackwardArgs& args, ThreadPool& pool);

/// y = a + b.
struct AddArgs {
  TensorView a;
  TensorView b;
  TensorView y;  ///< written
};
Status add_async(Backend& backend, Stream& stream, const AddArgs& args);
void add_host(const AddArgs& args, ThreadPool& pool);

/// y = a * b.
struct MultiplyArgs {
  TensorView a;
  TensorView b;
  TensorView y;  ///< written
};
Status multiply_async(Backend& backend, Stream& stream, const MultiplyArgs& args);
void multiply_host(const MultiplyArgs& args, ThreadPool& pool);

/// y = factor * x, or by * factor * x.
struct ScaleArgs {
  TensorView x;
  TensorView y;  ///< written
  float factor = 1.0f;
  TensorView by = {};  ///< f32, one value, or none
};
Status scale_async(Backend& backend, Stream& stream, const ScaleArgs& args);
void scale_host(const ScaleArgs& args, ThreadPool& pool);

/// y = cap * tanh(x / cap), f32 only.
struct SoftcapArgs {
  TensorView x;  ///< f32
  TensorView y;  ///< f32, written
  float cap = 0.0f;
};
Status softcap_async(Backend& backend, Stream& stream, const SoftcapArgs& args);
void softcap_host(const SoftcapArgs& args, ThreadPool& pool);

/// Sets every element of x to `value`.
struct FillArgs {
  TensorView x;  ///< written
  float value = 0.0f;
};
Status fill_async(Backend& backend, Stream& stream, const FillArgs& args);
void fill_host(const FillArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
