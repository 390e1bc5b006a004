#include <strata/kernels/mixers/latent_heads.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// latent_qkv: (q [T, q_width], kv [T, kv_width] or none, rotated_key [T, rotated]) -> qkv [T, 3 q_width]
// latent_qkv_backward: (dqkv) -> dq, dkv, drotated_key
// trim_heads: (x [T, q_width]) -> y [T, out_width]
// untrim_heads: (dy) -> dx

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

bool has_heads(const kernels::LatentHeads& h) {
  return h.heads >= 1 && h.plain >= 1 && h.rotated >= 1 && h.value >= 1 && h.value <= h.head_dim();
}
std::string heads_of(const char* operands, const kernels::LatentHeads& h) {
  return str(operands, " of ", h.heads, " heads of ", h.plain, " and ", h.rotated,
             " elements with values of ", h.value);
}
bool is_wide(const ValueInfo* info, std::int64_t columns) {
  return is_matrix(info) && info->shape.dim(1) == columns;
}

Specs infer_latent_qkv(In in, const Attrs& attrs) {
  const auto& h = attrs.as<LatentHeadsAttrs>().heads;
  const bool fit = is_matrix(in[0]) && has_heads(h) && is_wide(in[0], h.q_width()) &&
                   (in[1] == nullptr || has_type(in[1], {in[0]->shape.dim(0), h.kv_width()}, in[0]->dtype)) &&
                   has_type(in[2], {in[0]->shape.dim(0), h.rotated}, in[0]->dtype);
  if (!fit) return mismatch(heads_of("q, kv and a rotated key", h), in);
  return std::vector<OutputSpec>{{"qkv", {in[0]->shape.dim(0), 3 * h.q_width()}, in[0]->dtype}};
}
void vjp_latent_qkv(VjpContext& c) {
  c.emit(Op::latent_qkv_backward, {c.grad_output(0)}, {0, 1, 2}, c.attrs());
}
Status launch_latent_qkv(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::latent_qkv_forward_async(
      backend, stream, {c.in[0], or_none(c.in[1]), c.in[2], c.out[0], c.attrs.as<LatentHeadsAttrs>().heads});
}

Specs infer_latent_qkv_backward(In in, const Attrs& attrs) {
  const auto& h = attrs.as<LatentHeadsAttrs>().heads;
  if (!has_heads(h) || !is_wide(in[0], 3 * h.q_width())) return mismatch(heads_of("dqkv", h), in);
  const std::int64_t rows = in[0]->shape.dim(0);
  return std::vector<OutputSpec>{{"dq", {rows, h.q_width()}, in[0]->dtype},
                                 {"dkv", {rows, h.kv_width()}, in[0]->dtype},
                                 {"drotated_key", {rows, h.rotated}, in[0]->dtype}};
}
Status launch_latent_qkv_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::latent_qkv_backward_async(
      backend, stream, {c.in[0], c.out[0], c.out[1], c.out[2], c.attrs.as<LatentHeadsAttrs>().heads});
}

Specs infer_trim_heads(In in, const Attrs& attrs) {
  const auto& h = attrs.as<LatentHeadsAttrs>().heads;
  if (!has_heads(h) || !is_wide(in[0], h.q_width())) return mismatch(heads_of("x", h), in);
  return std::vector<OutputSpec>{{"y", {in[0]->shape.dim(0), h.out_width()}, in[0]->dtype}};
}
void vjp_trim_heads(VjpContext& c) { c.emit(Op::untrim_heads, {c.grad_output(0)}, {0}, c.attrs()); }
Status launch_trim_heads(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::trim_heads_forward_async(backend, stream,
                                           {c.in[0], c.out[0], c.attrs.as<LatentHeadsAttrs>().heads});
}

Specs infer_untrim_heads(In in, const Attrs& attrs) {
  const auto& h = attrs.as<LatentHeadsAttrs>().heads;
  if (!has_heads(h) || !is_wide(in[0], h.out_width())) return mismatch(heads_of("dy", h), in);
  return std::vector<OutputSpec>{{"dx", {in[0]->shape.dim(0), h.q_width()}, in[0]->dtype}};
}
Status launch_untrim_heads(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::trim_heads_backward_async(backend, stream,
                                            {c.in[0], c.out[0], c.attrs.as<LatentHeadsAttrs>().heads});
}

}  // namespace

Value Builder::latent_qkv(Value q, Value kv, Value rotated_key, const kernels::LatentHeads& heads) {
  return op(Op::latent_qkv, {q, kv, rotated_key}, LatentHeadsAttrs{.heads = heads});
}
Value Builder::trim_heads(Value x, const kernels::LatentHeads& heads) {
  return op(Op::trim_heads, {x}, LatentHeadsAttrs{.heads = heads});
}

constinit const OpDef detail::op_defs::latent_qkv = {
    .n_in = 3,
    .optional_in = 1,
    .infer_outputs = infer_latent_qkv,
    .vjp = vjp_latent_qkv,
    .flops = no_flops,
    .launch = launch_latent_qkv,
    .adds_to_gradients = false,
};
constinit const OpDef detail::op_defs::latent_qkv_backward = {
    .n_in = 1,
    .infer_outputs = infer_latent_qkv_backward,
    .flops = no_flops,
    .launch = launch_latent_qkv_backward,
    .adds_to_gradients = false,
};
constinit const OpDef detail::op_defs::trim_heads = {
    .n_in = 1,
    .infer_outputs = infer_trim_heads,
    .vjp = vjp_trim_heads,
    .flops = no_flops,
    .launch = launch_trim_heads,
    .adds_to_gradients = false,
};
constinit const OpDef detail::op_defs::untrim_heads = {
    .n_in = 1,
    .infer_outputs = infer_untrim_heads,
    .flops = no_flops,
    .launch = launch_untrim_heads,
    .adds_to_gradients = false,
};

}  // namespace strata
