#include <strata/graph/ops.h>

#include <array>

#include <strata/kernels/attention.h>
#include <strata/kernels/embedding.h>
#include <strata/kernels/layernorm.h>
#include <strata/kernels/linear.h>
#include <strata/runtime/str.h>

// The op set. For each op: the rule for its outputs, its derivative, what may run in place, its cost.
// Order of operands is fixed here and read by launch.cpp, which binds the kernels.

namespace strata {
namespace {

using In = std::span<const ValueInfo* const>;
using Specs = Result<std::vector<OutputSpec>>;

Status mismatch(std::string_view rule, In in) {
  std::string shapes;
  for (const ValueInfo* info : in)
    shapes += str(shapes.empty() ? "" : ", ",
                  info == nullptr ? std::string("none") : str(info->name, " ", to_string(info->shape)));
  return Status::error(Code::invalid, str("needs ", rule, "; given ", shapes));
}
bool is(const ValueInfo* info, const Shape& shape, DType dtype = DType::f32) {
  return info != nullptr && info->shape == shape && info->dtype == dtype;
}
bool matrix(const ValueInfo* info) {
  return info != nullptr && info->shape.rank == 2 && info->dtype == DType::f32;
}
OutputSpec workspace(std::size_t bytes) {
  return {"workspace", {static_cast<std::int64_t>(bytes)}, DType::u8, true};
}
double no_flops(In, In, const Attrs&) { return 0; }
double per_element(In in, In, const Attrs&) { return 10.0 * static_cast<double>(in[0]->shape.n_elems()); }

// --- embedding: (tokens [T] i32, wte [V, h], wpe [S, h]) -> x [T, h]; position of row t is t % seq ---
Specs infer_embedding(In in, const Attrs& attrs) {
  if (in[0] == nullptr || in[0]->dtype != DType::i32 || in[0]->shape.rank != 1 || !matrix(in[1]) ||
      !matrix(in[2]) || in[1]->shape.dim(1) != in[2]->shape.dim(1) || attrs.seq <= 0 ||
      in[2]->shape.dim(0) < attrs.seq || in[0]->shape.dim(0) % attrs.seq != 0)
    return mismatch(str("tokens [batch * ", attrs.seq, "] i32, tables [V, h] and [>= ", attrs.seq, ", h]"),
                    in);
  return std::vector<OutputSpec>{{"x", {in[0]->shape.dim(0), in[1]->shape.dim(1)}}};
}
void vjp_embedding(VjpContext& c) {
  c.emit(Op::embedding_backward, {c.in(0), c.grad_of_out(0), c.in(1), c.in(2)}, {1, 2, -1}, c.attrs());
}
// (tokens, dx, wte, wpe) -> dwte, dwpe, workspace; the tables only give their shapes
Specs infer_embedding_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{
      {"dwte", in[2]->shape},
      {"dwpe", in[3]->shape},
      workspace(kernels::embedding_backward_workspace_bytes(in[0]->shape.dim(0), in[2]->shape.dim(0)))};
}

// --- layernorm: (x [T, h], weight [h], bias [h]) -> y, mean [T], rstd [T] ---
Specs infer_layernorm(In in, const Attrs&) {
  if (!matrix(in[0]) || !is(in[1], {in[0]->shape.dim(1)}) || !is(in[2], {in[0]->shape.dim(1)}))
    return mismatch("x [T, h], weight [h], bias [h]", in);
  const std::int64_t rows = in[0]->shape.dim(0);
  return std::vector<OutputSpec>{{"y", in[0]->shape}, {"mean", {rows}}, {"rstd", {rows}}};
}
void vjp_layernorm(VjpContext& c) {
  c.emit(Op::layernorm_backward, {c.in(0), c.in(1), c.out(1), c.out(2), c.grad_of_out(0)}, {0, 1, 2, -1},
         c.attrs());
}
// (x, weight, mean, rstd, dy) -> dx, dweight, dbias, workspace
Specs infer_layernorm_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{
      {"dx", in[0]->shape},
      {"dweight", in[1]->shape},
      {"dbias", in[1]->shape},
      workspace(kernels::layernorm_backward_workspace_bytes(in[0]->shape.dim(0), in[0]->shape.dim(1)))};
}

// --- linear: (x [T, K], w [N, K], b [N] or none) -> y [T, N] ---
Specs infer_linear(In in, const Attrs&) {
  if (!matrix(in[0]) || !matrix(in[1]) || in[0]->shape.dim(1) != in[1]->shape.dim(1) ||
      (in[2] != nullptr && !is(in[2], {in[1]->shape.dim(0)})))
    return mismatch("x [T, K], weight [N, K], bias [N] or none", in);
  return std::vector<OutputSpec>{{"y", {in[0]->shape.dim(0), in[1]->shape.dim(0)}}};
}
void vjp_linear(VjpContext& c) {
  const ValueId dy = c.grad_of_out(0);
  if (c.wants_grad(2)) c.emit(Op::linear_backward_bias, {dy, c.in(2)}, {2, -1});
  if (c.wants_grad(1)) c.emit(Op::linear_backward_weight, {dy, c.in(0), c.in(1)}, {1});
  if (c.wants_grad(0)) c.emit(Op::linear_backward_input, {dy, c.in(1)}, {0});
}
double flops_linear(In in, In out, const Attrs&) {
  return 2.0 * static_cast<double>(out[0]->shape.n_elems()) * static_cast<double>(in[0]->shape.dim(1));
}
// (dy [T, N], w [N, K]) -> dx [T, K]; the cost is that of the forward product
Specs infer_linear_backward_input(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dx", {in[0]->shape.dim(0), in[1]->shape.dim(1)}}};
}
double flops_linear_input(In in, In, const Attrs&) {
  return 2.0 * static_cast<double>(in[0]->shape.n_elems()) * static_cast<double>(in[1]->shape.dim(1));
}
// (dy [T, N], x [T, K], w for its shape) -> dw [N, K]
Specs infer_linear_backward_weight(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dw", in[2]->shape}};
}
double flops_linear_weight(In in, In, const Attrs&) {
  return 2.0 * static_cast<double>(in[0]->shape.n_elems()) * static_cast<double>(in[1]->shape.dim(1));
}
// (dy [T, N], b for its shape) -> db [N], workspace
Specs infer_linear_backward_bias(In in, const Attrs&) {
  return std::vector<OutputSpec>{
      {"db", in[1]->shape},
      workspace(kernels::linear_backward_bias_workspace_bytes(in[0]->shape.dim(0), in[0]->shape.dim(1)))};
}

// --- gelu ---
Specs infer_gelu(In in, const Attrs&) {
  if (in[0] == nullptr || in[0]->dtype != DType::f32) return mismatch("x f32", in);
  return std::vector<OutputSpec>{{"y", in[0]->shape}};
}
void vjp_gelu(VjpContext& c) { c.emit(Op::gelu_backward, {c.in(0), c.grad_of_out(0)}, {0}); }
Specs infer_gelu_backward(In in, const Attrs&) { return std::vector<OutputSpec>{{"dx", in[0]->shape}}; }

// --- attention: (qkv [T, 3h]) -> out [T, h], lse [batch * heads * seq], workspace ---
Specs infer_attention(In in, const Attrs& a) {
  if (!matrix(in[0]) || a.heads <= 0 || a.seq <= 0 || in[0]->shape.dim(1) % (3 * a.heads) != 0 ||
      in[0]->shape.dim(0) % a.seq != 0)
    return mismatch(str("qkv [batch * ", a.seq, ", 3 * h] with h a multiple of ", a.heads, " heads"), in);
  const std::int64_t rows = in[0]->shape.dim(0);
  const std::int64_t h = in[0]->shape.dim(1) / 3;
  return std::vector<OutputSpec>{{"out", {rows, h}},
                                 {"lse", {rows * a.heads}},
                                 workspace(kernels::attention_forward_workspace_bytes(rows, a.heads, a.seq))};
}
void vjp_attention(VjpContext& c) {
  c.emit(Op::attention_backward, {c.in(0), c.out(0), c.out(1), c.grad_of_out(0)}, {0, -1}, c.attrs());
}
// Two products of T * seq * h each, halved by the mask; backward has five.
double flops_attention(In in, In, const Attrs& a) {
  return 2.0 / 3.0 * static_cast<double>(in[0]->shape.n_elems()) * a.seq;
}
double flops_attention_backward(In in, In out, const Attrs& a) { return 2.5 * flops_attention(in, out, a); }
// (qkv, out, lse, dout) -> dqkv, workspace
Specs infer_attention_backward(In in, const Attrs& a) {
  return std::vector<OutputSpec>{
      {"dqkv", in[0]->shape},
      workspace(kernels::attention_backward_workspace_bytes(in[0]->shape.dim(0), a.heads, a.seq))};
}

// --- add ---
Specs infer_add(In in, const Attrs&) {
  if (in[0] == nullptr || !is(in[0], in[0]->shape) || !is(in[1], in[0]->shape))
    return mismatch("two equal shapes, f32", in);
  return std::vector<OutputSpec>{{"y", in[0]->shape}};
}
void vjp_add(VjpContext& c) {
  c.pass_grad(0, c.grad_of_out(0));
  c.pass_grad(1, c.grad_of_out(0));
}

// --- cross_entropy: (logits [T, V], targets [T] i32) -> loss [1], losses [T], lse [T] ---
Specs infer_cross_entropy(In in, const Attrs&) {
  if (!matrix(in[0]) || !is(in[1], {in[0]->shape.dim(0)}, DType::i32))
    return mismatch("logits [T, V], targets [T] i32", in);
  const std::int64_t rows = in[0]->shape.dim(0);
  return std::vector<OutputSpec>{{"loss", {1}}, {"losses", {rows}}, {"lse", {rows}}};
}
// The loss is where backward begins, so its own gradient is 1 and no operand.
void vjp_cross_entropy(VjpContext& c) {
  c.emit(Op::cross_entropy_backward, {c.in(0), c.out(2), c.in(1)}, {0});
}
// (logits, lse, targets) -> dlogits
Specs infer_cross_entropy_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dlogits", in[0]->shape}};
}

constexpr OpDef::InPlace kNever{-1, -1};
const std::array<OpDef, kOps> kTable = {{
    {"embedding", infer_embedding, vjp_embedding, kNever, no_flops, 3},
    {"embedding_backward", infer_embedding_backward, nullptr, kNever, no_flops, 4},
    {"layernorm", infer_layernorm, vjp_layernorm, kNever, per_element, 3},
    {"layernorm_backward", infer_layernorm_backward, nullptr, kNever, per_element, 5},
    {"linear", infer_linear, vjp_linear, kNever, flops_linear, 3, 2},
    {"linear_backward_input", infer_linear_backward_input, nullptr, kNever, flops_linear_input, 2},
    {"linear_backward_weight", infer_linear_backward_weight, nullptr, kNever, flops_linear_weight, 3},
    {"linear_backward_bias", infer_linear_backward_bias, nullptr, kNever, no_flops, 2},
    {"gelu", infer_gelu, vjp_gelu, kNever, per_element, 1},
    {"gelu_backward", infer_gelu_backward, nullptr, {0, 1}, per_element, 2},
    {"attention", infer_attention, vjp_attention, kNever, flops_attention, 1},
    {"attention_backward", infer_attention_backward, nullptr, kNever, flops_attention_backward, 4},
    {"add", infer_add, vjp_add, {0, 0}, no_flops, 2},
    {"cross_entropy", infer_cross_entropy, vjp_cross_entropy, kNever, per_element, 2},
    {"cross_entropy_backward", infer_cross_entropy_backward, nullptr, {0, 0}, per_element, 3},
}};

}  // namespace

const OpDef& op_def(Op op) noexcept { return kTable[static_cast<std::size_t>(op)]; }

}  // namespace strata
