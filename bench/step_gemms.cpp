#include "step_gemms.h"

#include <cstring>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/kernels/linear.h>
#include <strata/runtime/status.h>

namespace strata::bench {

StepGemms::StepGemms(const Program& forward, Backend& backend) {
  for (const Instr& instr : forward.code) {
    if (instr.op != Op::linear) continue;
    const ValueInfo& x = forward.value(instr.in[0]);
    const ValueInfo& w = forward.value(instr.in[1]);
    const Shape y = forward.value(instr.out[0]).shape;
    const bool last = instr.attrs.as<LinearAttrs>().f32_out;  // the head: the gradient of its weight is f32
    layers_.push_back({.x = buffer_view(backend, x, "x"),
                       .w = buffer_view(backend, w, w.name),
                       .y = buffer_view(backend, {"", y, x.dtype}, "y"),
                       .dx = buffer_view(backend, x, "dx"),
                       .dw = buffer_view(backend, {"", w.shape, last ? DType::f32 : w.dtype}, "d" + w.name)});
    flops_ += 6.0 * static_cast<double>(x.shape.n_elems()) * static_cast<double>(y.dim(-1));
  }
}

void StepGemms::run(ThreadPool& pool) const {
  for (const Layer& layer : layers_) {
    kernels::linear_forward_host({layer.x, layer.w, {}, layer.y}, pool);
    kernels::linear_backward_input_host({layer.y, layer.w, layer.dx}, pool);
    kernels::linear_backward_weight_host({layer.y, layer.x, layer.dw}, pool);
  }
}

TensorView StepGemms::buffer_view(Backend& backend, const ValueInfo& value, const std::string& role) {
  const auto [at, fresh] = buffers_.try_emplace({role, value.shape.n_elems()});
  if (fresh) {
    at->second = must(backend.allocate(MemoryKind::device, value.bytes()));
    std::memset(at->second.view().data, 0x3C, value.bytes());  // about 0.01, both in f32 and in bf16
  }
  return {at->second.view().data, value.shape, value.dtype};
}

}  // namespace strata::bench
