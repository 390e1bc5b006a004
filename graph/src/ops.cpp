#include <strata/graph/ops.h>

#include <array>

#include <strata/kernels/attention.h>
#include <strata/kernels/embedding.h>
#include <strata/kernels/layernorm.h>
#include <strata/kernels/rmsnorm.h>
#include <strata/runtime/str.h>

#include "op_rules.h"

// The op set: for each op the rule for its outputs, its derivative, which output may share memory with which
// input, and its cost. The order of operands is defined here and relied on by launch.cpp, which binds the
// kernels.

namespace strata {
namespace {

using namespace detail::op_rules;

double no_flops(In, In, const Attrs&) { return 0; }
bool matches_residual(const ValueInfo* residual, const ValueInfo* x) {
  return residual == nullptr || has_type(residual, x->shape, x->dtype);
}
double per_element(In in, In, const Attrs&) { return 10.0 * static_cast<double>(in[0]->shape.n_elems()); }

// --- embedding: (ids [T] i32, table [V, h]) -> x [T, h]; row t is table[ids[t] + offset] ---
Specs infer_embedding(In in, const Attrs& a) {
  if (in[0] == nullptr || in[0]->dtype != DType::i32 || in[0]->shape.rank != 1 || !is_matrix(in[1]) ||
      a.offset < 0 || in[1]->shape.dim(0) <= a.offset)
    return mismatch(str("ids [T] i32, table [> ", a.offset, ", h]"), in);
  return std::vector<OutputSpec>{{"x", {in[0]->shape.dim(0), in[1]->shape.dim(1)}, in[1]->dtype}};
}
void vjp_embedding(VjpContext& c) {
  c.emit(Op::embedding_backward, {c.in(0), c.grad_output(0), c.in(1)}, {1, -1}, c.attrs());
}
// (ids, dx, table for its shape) -> dtable, workspace
Specs infer_embedding_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{
      {"dtable", in[2]->shape, in[2]->dtype},
      workspace(kernels::embedding_backward_workspace_bytes(in[0]->shape.dim(0), in[2]->shape.dim(0)))};
}

// --- layernorm: (x [T, h], weight [h], bias [h]) -> y, mean [T], rstd [T] ---
Specs infer_layernorm(In in, const Attrs&) {
  if (!is_matrix(in[0]) || !has_type(in[1], {in[0]->shape.dim(1)}, in[0]->dtype) ||
      !has_type(in[2], {in[0]->shape.dim(1)}, in[0]->dtype))
    return mismatch("x [T, h], weight [h], bias [h] of one dtype", in);
  const std::int64_t rows = in[0]->shape.dim(0);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}, {"mean", {rows}}, {"rstd", {rows}}};
}
// The residual stream bypasses the norm, so the gradient that it has so far is added to dx in the same pass.
void vjp_layernorm(VjpContext& c) {
  const ValueId residual_grad = c.consume_input_grad(0);
  c.emit(Op::layernorm_backward, {c.in(0), c.in(1), c.out(1), c.out(2), c.grad_output(0), residual_grad},
         {0, 1, 2, -1}, c.attrs());
}
// (x, weight, mean, rstd, dy, residual or none) -> dx, dweight, dbias, workspace
Specs infer_layernorm_backward(In in, const Attrs&) {
  if (!matches_residual(in[5], in[0]))
    return mismatch("a residual gradient with the shape and dtype of x", in);
  return std::vector<OutputSpec>{
      {"dx", in[0]->shape, in[0]->dtype},
      {"dweight", in[1]->shape, in[1]->dtype},
      {"dbias", in[1]->shape, in[1]->dtype},
      workspace(kernels::layernorm_backward_workspace_bytes(in[0]->shape.dim(0), in[0]->shape.dim(1)))};
}

// --- add_layernorm (emitted by fuse_add_norm(), after derivation): (x [T, h], added [T, h], weight [h], bias
// [h]) -> y, mean [T], rstd [T], sum [T, h] ---
Specs infer_add_layernorm(In in, const Attrs& a) {
  if (!is_matrix(in[0]) || !has_type(in[1], in[0]->shape, in[0]->dtype))
    return mismatch("x and added [T, h], weight [h], bias [h] of one dtype", in);
  STRATA_TRY_ASSIGN(auto outputs, infer_layernorm(std::array{in[0], in[2], in[3]}, a));
  outputs.push_back({"sum", in[0]->shape, in[0]->dtype});
  return outputs;
}

// --- gelu; relu has the same rules ---
Specs infer_gelu(In in, const Attrs&) {
  if (in[0] == nullptr || !is_compute_dtype(in[0]->dtype)) return mismatch("x f32, bf16 or f16", in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
void vjp_gelu(VjpContext& c) { c.emit(Op::gelu_backward, {c.in(0), c.grad_output(0)}, {0}); }
Specs infer_gelu_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dx", in[0]->shape, in[0]->dtype}};
}

// --- relu ---
void vjp_relu(VjpContext& c) { c.emit(Op::relu_backward, {c.in(0), c.grad_output(0)}, {0}); }

// --- scale: (x) -> y = attrs.scale x ---
void vjp_scale(VjpContext& c) { c.emit(Op::scale, {c.grad_output(0)}, {0}, c.attrs()); }

// --- softcap: (x f32) -> y; for logits of inference only, as it has no derivative ---
Specs infer_softcap(In in, const Attrs& a) {
  if (in[0] == nullptr || in[0]->dtype != DType::f32 || !(a.softcap > 0))
    return mismatch(str("x f32 and a cap above 0, not ", a.softcap), in);
  return std::vector<OutputSpec>{{"y", in[0]->shape}};
}

// --- swiglu: (gate_up [T, 2f]) -> y [T, f] ---
Specs infer_swiglu(In in, const Attrs&) {
  if (!is_matrix(in[0]) || in[0]->shape.dim(1) % 2 != 0) return mismatch("gate_up [T, 2f]", in);
  return std::vector<OutputSpec>{{"y", {in[0]->shape.dim(0), in[0]->shape.dim(1) / 2}, in[0]->dtype}};
}
void vjp_swiglu(VjpContext& c) { c.emit(Op::swiglu_backward, {c.in(0), c.grad_output(0)}, {0}, c.attrs()); }
// (gate_up, dy) -> dgate_up
Specs infer_swiglu_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dgate_up", in[0]->shape, in[0]->dtype}};
}

// --- rmsnorm: (x [T, h], weight [h]) -> y, rstd [T] ---
Specs infer_rmsnorm(In in, const Attrs&) {
  if (!is_matrix(in[0]) || !has_type(in[1], {in[0]->shape.dim(1)}, in[0]->dtype))
    return mismatch("x [T, h], weight [h] of one dtype", in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}, {"rstd", {in[0]->shape.dim(0)}}};
}
void vjp_rmsnorm(VjpContext& c) {
  const ValueId residual_grad = c.consume_input_grad(0);
  c.emit(Op::rmsnorm_backward, {c.in(0), c.in(1), c.out(1), c.grad_output(0), residual_grad}, {0, 1, -1},
         c.attrs());
}
// (x, weight, rstd, dy, residual or none) -> dx, dweight, workspace
Specs infer_rmsnorm_backward(In in, const Attrs&) {
  if (!matches_residual(in[4], in[0]))
    return mismatch("a residual gradient with the shape and dtype of x", in);
  return std::vector<OutputSpec>{
      {"dx", in[0]->shape, in[0]->dtype},
      {"dweight", in[1]->shape, in[1]->dtype},
      workspace(kernels::rmsnorm_backward_workspace_bytes(in[0]->shape.dim(0), in[0]->shape.dim(1)))};
}

// --- add_rmsnorm (also emitted by fuse_add_norm()): (x [T, h], added [T, h], weight [h]) -> y, rstd [T], sum
// [T, h] ---
Specs infer_add_rmsnorm(In in, const Attrs& a) {
  if (!is_matrix(in[0]) || !has_type(in[1], in[0]->shape, in[0]->dtype))
    return mismatch("x and added [T, h], weight [h] of one dtype", in);
  STRATA_TRY_ASSIGN(auto outputs, infer_rmsnorm(std::array{in[0], in[2]}, a));
  outputs.push_back({"sum", in[0]->shape, in[0]->dtype});
  return outputs;
}

// --- qk_norm: (qkv [T, (heads + 2 kv_heads) d], q_weight [d], k_weight [d]), or the weights [heads d] and
// [kv_heads d], -> y, rstd ---
Specs infer_qk_norm(In in, const Attrs& a) {
  const std::int64_t parts = a.heads + 2 * a.kv_heads;
  const bool fits = is_matrix(in[0]) && a.heads > 0 && a.kv_heads > 0 && in[0]->shape.dim(1) % parts == 0;
  const std::int64_t d = fits ? in[0]->shape.dim(1) / parts : 0;
  const bool of_heads = fits && has_type(in[1], {d}, in[0]->dtype) && has_type(in[2], {d}, in[0]->dtype);
  const bool of_all =
      fits && has_type(in[1], {a.heads * d}, in[0]->dtype) && has_type(in[2], {a.kv_heads * d}, in[0]->dtype);
  if (d == 0 || (!of_heads && !of_all))
    return mismatch(str("qkv [T, (", a.heads, " + 2 * ", a.kv_heads, ") d] and weights [d] and [d], or [",
                        a.heads, " d] and [", a.kv_heads, " d], of one dtype"),
                    in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype},
                                 {"rstd", {in[0]->shape.dim(0) * (of_heads ? a.heads + a.kv_heads : 2)}}};
}
void vjp_qk_norm(VjpContext& c) {
  c.emit(Op::qk_norm_backward, {c.in(0), c.in(1), c.in(2), c.out(1), c.grad_output(0)}, {0, 1, 2, -1},
         c.attrs());
}
// (qkv, q_weight, k_weight, rstd, dy) -> dx, dq_weight, dk_weight, workspace
Specs infer_qk_norm_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dx", in[0]->shape, in[0]->dtype},
                                 {"dq_weight", in[1]->shape, in[1]->dtype},
                                 {"dk_weight", in[2]->shape, in[2]->dtype},
                                 workspace(kernels::qk_norm_backward_workspace_bytes(
                                     in[0]->shape.dim(0), in[1]->shape.dim(0), in[2]->shape.dim(0)))};
}

// --- positions: (doc_start [rows] i32 or none) -> positions [rows] i32 ---
Specs infer_positions(In in, const Attrs& a) {
  if (a.rows <= 0 || a.seq <= 0 || a.rows % a.seq != 0 ||
      (in[0] != nullptr && !has_type(in[0], {a.rows}, DType::i32)))
    return mismatch(str("doc_start [", a.rows, "] i32 or none, a multiple of ", a.seq), in);
  return std::vector<OutputSpec>{{"positions", {a.rows}, DType::i32}};
}

// --- rope_table: () -> table [seq, rotary_dim] ---
Specs infer_rope_table(In in, const Attrs& a) {
  if (a.seq <= 0 || a.rotary_dim <= 0 || a.rotary_dim % 2 != 0)
    return mismatch(str("a positive number of positions and a positive, even rotary_dim, not ", a.seq,
                        " and ", a.rotary_dim),
                    in);
  return std::vector<OutputSpec>{{"table", {a.seq, a.rotary_dim}}};
}

// --- rope: (qkv [T, (heads + 2 kv_heads) d], positions [T] i32, table [seq, r <= d]) -> y; rotates q and k
// ---
Specs infer_rope(In in, const Attrs& a) {
  const std::int64_t parts = a.heads + 2 * a.kv_heads;
  if (!is_matrix(in[0]) || parts <= 0 || in[0]->shape.dim(1) % parts != 0 ||
      !has_type(in[1], {in[0]->shape.dim(0)}, DType::i32) || !is_matrix(in[2]) ||
      in[2]->dtype != DType::f32 || in[2]->shape.dim(1) > in[0]->shape.dim(1) / parts)
    return mismatch(
        str("qkv [T, (", a.heads, " + 2 * ", a.kv_heads, ") d], positions [T] i32, table [seq, <= d] f32"),
        in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
void vjp_rope(VjpContext& c) {
  Attrs attrs = c.attrs();
  attrs.inverse = !attrs.inverse;
  c.emit(Op::rope, {c.grad_output(0), c.in(1), c.in(2)}, {0}, attrs);
}

// --- attention: (qkv [T, (heads + 2 kv_heads) d], doc_start [T] i32 or none) -> out [T, heads d],
// lse [T * heads], workspace ---
bool scores_fit(const Attrs& a) { return a.window >= 0 && a.softcap >= 0 && a.scale >= 0; }
Specs infer_attention(In in, const Attrs& a) {
  const std::int64_t parts = a.heads + 2 * a.kv_heads;
  if (!is_matrix(in[0]) || a.heads <= 0 || a.kv_heads <= 0 || a.heads % a.kv_heads != 0 || a.seq <= 0 ||
      in[0]->shape.dim(1) % parts != 0 || in[0]->shape.dim(0) % a.seq != 0 || !scores_fit(a) ||
      (in[1] != nullptr && !has_type(in[1], {in[0]->shape.dim(0)}, DType::i32)))
    return mismatch(
        str("qkv [batch * ", a.seq, ", (", a.heads, " + 2 * ", a.kv_heads,
            ") d] with heads a multiple of kv_heads, doc_start [T] i32 or none, a window of ", a.window,
            ", a soft cap of ", a.softcap, " and a scale of ", a.scale, " that are not negative"),
        in);
  const std::int64_t rows = in[0]->shape.dim(0);
  return std::vector<OutputSpec>{{"out", {rows, in[0]->shape.dim(1) / parts * a.heads}, in[0]->dtype},
                                 {"lse", {rows * a.heads}},
                                 workspace(kernels::attention_forward_workspace_bytes(
                                     rows, attention_heads(a), in[0]->dtype, in[0]->shape.dim(1) / parts))};
}
void vjp_attention(VjpContext& c) {
  c.emit(Op::attention_backward, {c.in(0), c.out(0), c.out(1), c.grad_output(0), c.in(1)}, {0, -1},
         c.attrs());
}
/// Twice the mean number of keys that a query sees: all up to its own, or at most `window` of them.
double twice_mean_keys(double max_keys, std::int32_t window) {
  return window == 0 || window >= max_keys ? max_keys : window * (2.0 - window / max_keys);
}
// Two matmuls of T * seq * heads * d each, halved by the causal mask; backward has five.
double flops_attention(In in, In, const Attrs& a) {
  const double d = static_cast<double>(in[0]->shape.dim(1)) / (a.heads + 2 * a.kv_heads);
  return 2.0 * static_cast<double>(in[0]->shape.dim(0)) * twice_mean_keys(a.seq, a.window) * a.heads * d;
}
double flops_attention_backward(In in, In out, const Attrs& a) { return 2.5 * flops_attention(in, out, a); }
// (qkv, out, lse, dout, doc_start or none) -> dqkv, workspace
Specs infer_attention_backward(In in, const Attrs& a) {
  return std::vector<OutputSpec>{{"dqkv", in[0]->shape, in[0]->dtype},
                                 workspace(kernels::attention_backward_workspace_bytes(
                                     in[0]->shape.dim(0), attention_heads(a), in[0]->dtype,
                                     in[0]->shape.dim(1) / (a.heads + 2 * a.kv_heads)))};
}

// --- add ---
Specs infer_add(In in, const Attrs&) {
  if (in[0] == nullptr || !is_compute_dtype(in[0]->dtype) || !has_type(in[1], in[0]->shape, in[0]->dtype))
    return mismatch("two equal shapes of one dtype", in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
void vjp_add(VjpContext& c) {
  c.propagate_grad(0, c.grad_output(0));
  c.propagate_grad(1, c.grad_output(0));
}

// --- cross_entropy: (logits [T, V], targets [T] i32, divisor [1] or none) -> loss [1], losses [T], lse [T]
// ---
Specs infer_cross_entropy(In in, const Attrs&) {
  if (!is_matrix(in[0]) || !has_type(in[1], {in[0]->shape.dim(0)}, DType::i32) ||
      (in[2] != nullptr && !has_type(in[2], {1})))
    return mismatch("logits [T, V], targets [T] i32, divisor [1] or none", in);
  const std::int64_t rows = in[0]->shape.dim(0);
  return std::vector<OutputSpec>{{"loss", {1}}, {"losses", {rows}}, {"lse", {rows}}};
}
// Backward starts at the loss, so the loss's own gradient is 1 and is not an operand.
void vjp_cross_entropy(VjpContext& c) {
  c.emit(Op::cross_entropy_backward, {c.in(0), c.out(2), c.in(1), c.in(2)}, {0});
}
// (logits, lse, targets, divisor or none) -> dlogits
Specs infer_cross_entropy_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dlogits", in[0]->shape, in[0]->dtype}};
}

// --- cached_attention: (qkv [R, (heads + 2 kv_heads) d], positions [R] i32, slots [R] i32, keys and values:
// states [sequences, kv_heads, capacity, d], written in place) -> out [R, heads d], workspace ---
Specs infer_cached_attention(In in, const Attrs& a) {
  const std::int64_t parts = a.heads + 2 * a.kv_heads;
  const auto holds = [&](const ValueInfo* cache) {
    return cache != nullptr && cache->kind == ValueKind::state && cache->dtype == DType::f32 &&
           cache->shape.rank == 4 && cache->shape.dim(1) == a.kv_heads &&
           cache->shape.dim(3) == in[0]->shape.dim(1) / parts;
  };
  if (!is_matrix(in[0]) || in[0]->dtype != DType::f32 || a.heads <= 0 || a.kv_heads <= 0 ||
      a.heads % a.kv_heads != 0 || in[0]->shape.dim(1) % parts != 0 || !scores_fit(a) ||
      !has_type(in[1], {in[0]->shape.dim(0)}, DType::i32) ||
      !has_type(in[2], {in[0]->shape.dim(0)}, DType::i32) || !holds(in[3]) ||
      !has_type(in[4], in[3]->shape) || in[4]->kind != ValueKind::state)
    return mismatch(
        str("qkv [R, (", a.heads, " + 2 * ", a.kv_heads,
            ") d] with heads a multiple of kv_heads, positions and slots [R] i32, and the states keys "
            "and values [sequences, ",
            a.kv_heads, ", capacity, d]"),
        in);
  const std::int64_t rows = in[0]->shape.dim(0);
  return std::vector<OutputSpec>{{"out", {rows, in[0]->shape.dim(1) / parts * a.heads}},
                                 workspace(kernels::cached_attention_workspace_bytes(
                                     rows, in[3]->shape.dim(2), cached_attention_shape(a)))};
}
// Two matmuls with as many keys as a token sees on average: half the capacity.
double flops_cached_attention(In in, In out, const Attrs& a) {
  return 2.0 * static_cast<double>(out[0]->shape.n_elems()) *
         twice_mean_keys(static_cast<double>(in[3]->shape.dim(2)), a.window);
}

// --- accumulate: (gradient of one micro-batch, of any shape) -> the parameter's gradient, an f32 sum ---
Specs infer_accumulate(In in, const Attrs&) {
  if (in[0] == nullptr || in[0]->kind != ValueKind::micro_batch_grad)
    return mismatch("the gradient of one micro-batch", in);
  return std::vector<OutputSpec>{{"grad", in[0]->shape, DType::f32}};
}

constexpr OpDef::InPlace kNever{-1, -1};
const std::array<OpDef, kOps> kTable = {{
    {"embedding", infer_embedding, vjp_embedding, kNever, no_flops, 2},
    {"embedding_backward", infer_embedding_backward, nullptr, kNever, no_flops, 3},
    {"layernorm", infer_layernorm, vjp_layernorm, kNever, per_element, 3},
    {"layernorm_backward", infer_layernorm_backward, nullptr, kNever, per_element, 6, 5},
    {"add_layernorm", infer_add_layernorm, nullptr, {3, 1}, per_element, 4},
    {"linear", infer_linear, vjp_linear, kNever, flops_linear, 3, 2},
    {"linear_backward_input", infer_linear_backward_input, nullptr, kNever, flops_linear_input, 2},
    {"linear_backward_weight", infer_linear_backward_weight, nullptr, kNever, flops_linear_weight, 3},
    {"linear_backward_bias", infer_linear_backward_bias, nullptr, kNever, no_flops, 2},
    {"gelu", infer_gelu, vjp_gelu, kNever, per_element, 1},
    {"gelu_backward", infer_gelu_backward, nullptr, {0, 1}, per_element, 2},
    {"relu", infer_gelu, vjp_relu, kNever, no_flops, 1},
    {"relu_backward", infer_gelu_backward, nullptr, {0, 1}, no_flops, 2},
    {"scale", infer_gelu, vjp_scale, {0, 0}, no_flops, 1},
    {"softcap", infer_softcap, nullptr, {0, 0}, per_element, 1},
    {"swiglu", infer_swiglu, vjp_swiglu, kNever, per_element, 1},
    {"swiglu_backward", infer_swiglu_backward, nullptr, {0, 0}, per_element, 2},
    {"rmsnorm", infer_rmsnorm, vjp_rmsnorm, kNever, per_element, 2},
    {"rmsnorm_backward", infer_rmsnorm_backward, nullptr, {0, 3}, per_element, 5, 4},
    {"add_rmsnorm", infer_add_rmsnorm, nullptr, {2, 1}, per_element, 3},
    {"qk_norm", infer_qk_norm, vjp_qk_norm, {0, 0}, per_element, 3},
    {"qk_norm_backward", infer_qk_norm_backward, nullptr, {0, 4}, per_element, 5},
    {"positions", infer_positions, nullptr, kNever, no_flops, 1, 0},
    {"rope_table", infer_rope_table, nullptr, kNever, no_flops, 0},
    {"rope", infer_rope, vjp_rope, {0, 0}, per_element, 3},
    {"attention", infer_attention, vjp_attention, kNever, flops_attention, 2, 1},
    {"attention_backward", infer_attention_backward, nullptr, kNever, flops_attention_backward, 5, 4},
    {"add", infer_add, vjp_add, {0, 0}, no_flops, 2},
    {"cross_entropy", infer_cross_entropy, vjp_cross_entropy, kNever, per_element, 3, 2},
    {"cross_entropy_backward", infer_cross_entropy_backward, nullptr, {0, 0}, per_element, 4, 3},
    {"linear_cross_entropy", infer_linear_cross_entropy, vjp_linear_cross_entropy, kNever,
     flops_linear_cross_entropy, 4, 3},
    {"linear_cross_entropy_backward", infer_linear_cross_entropy_backward, nullptr, kNever,
     flops_linear_cross_entropy_backward, 4, 3},
    {"fp8_cast", infer_fp8_cast, nullptr, kNever, no_flops, 1},
    {"fp8_gemm", infer_fp8_gemm, nullptr, kNever, flops_fp8_gemm, 5, 4},
    {"accumulate", infer_accumulate, nullptr, kNever, no_flops, 1},
    {"cached_attention", infer_cached_attention, nullptr, kNever, flops_cached_attention, 5},
    {"offload_begin", infer_begin_from_device, nullptr, kNever, no_flops, 1},
    {"offload_end", infer_end_at_host, nullptr, {0, 1}, no_flops, 2},
    {"store_begin", infer_begin_from_host, nullptr, kNever, no_flops, 1},
    {"store_end", infer_end_at_store, nullptr, {0, 1}, no_flops, 2},
    {"load_begin", infer_begin_from_store, nullptr, kNever, no_flops, 1},
    {"load_end", infer_end_at_store, nullptr, {0, 0}, no_flops, 2},
    {"fetch_begin", infer_begin_from_host, nullptr, kNever, no_flops, 1},
    {"fetch_end", infer_end_at_host, nullptr, {0, 0}, no_flops, 2},
}};

}  // namespace

kernels::AttentionHeads attention_heads(const Attrs& a) noexcept {
  return {.heads = a.heads,
          .kv_heads = a.kv_heads,
          .seq = a.seq,
          .causal = true,
          .alibi = a.alibi,
          .backend = a.backend,
          .window = a.window,
          .softcap = a.softcap,
          .scale = a.scale};
}

kernels::CachedAttentionShape cached_attention_shape(const Attrs& a) noexcept {
  return {.heads = a.heads,
          .kv_heads = a.kv_heads,
          .alibi = a.alibi,
          .window = a.window,
          .softcap = a.softcap,
          .scale = a.scale};
}

const OpDef& op_def(Op op) noexcept { return kTable[static_cast<std::size_t>(op)]; }

double flops(const Program& program, const Instr& instr) {
  std::vector<const ValueInfo*> in, out;
  for (const ValueId id : instr.in) in.push_back(id == kNoValue ? nullptr : &program.value(id));
  for (const ValueId id : instr.out) out.push_back(&program.value(id));
  return op_def(instr.op).flops(in, out, instr.attrs);
}

}  // namespace strata
