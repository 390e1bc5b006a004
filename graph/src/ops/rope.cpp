#include <strata/kernels/rope.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// rope_table: () -> table [positions, rotary_dim]
// rope: (qkv [T, (heads + 2 kv_heads) d], positions [T] i32, table [positions, r <= d]) -> y; rotates q and
// k. Its derivative rotates backward.

namespace strata {
namespace {

using namespace detail::op_rules;

Specs infer_rope_table(In in, const Attrs& attrs) {
  const auto& a = attrs.as<RopeTableAttrs>();
  if (a.positions <= 0 || a.rotary_dim <= 0 || a.rotary_dim % 2 != 0)
    return mismatch(str("a positive number of positions and a positive, even rotary_dim, not ", a.positions,
                        " and ", a.rotary_dim),
                    in);
  return std::vector<OutputSpec>{{"table", {a.positions, a.rotary_dim}}};
}
Status launch_rope_table(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::rope_table_async(backend, stream, {c.out[0], c.attrs.as<RopeTableAttrs>().frequencies});
}

Specs infer_rope(In in, const Attrs& attrs) {
  const auto& a = attrs.as<RopeAttrs>();
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
  RopeAttrs attrs = c.attrs().as<RopeAttrs>();
  attrs.inverse = !attrs.inverse;
  c.emit(Op::rope, {c.grad_output(0), c.in(1), c.in(2)}, {0}, attrs);
}
Cut rope_columns(const ValueInfo& qkv, const Attrs& attrs, const Cut&) {
  const auto& a = attrs.as<RopeAttrs>();
  return cut_by_heads(qkv, a.heads, a.kv_heads);
}
std::vector<ShardStrategy> shard_rope(const ShardQuery& q) {
  const ShardPlacement rows = ShardPlacement::split(0, q.cut_of(0, 0)), whole = ShardPlacement::copied();
  const ShardPlacement heads = ShardPlacement::split(1, rope_columns(*q.in[0], q.attrs, {}));
  return {{{rows, rows, whole}, rows},
          {{heads, whole, whole}, heads, with_own_heads(q.attrs.as<RopeAttrs>(), q.axis.ranks)}};
}
Status launch_rope(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<RopeAttrs>();
  return kernels::rope_async(backend, stream,
                             {c.in[0], c.in[1], c.in[2], c.out[0], a.heads + a.kv_heads,
                              c.in[0].shape.dim(1) / (a.heads + 2 * a.kv_heads), a.interleaved, a.inverse});
}

}  // namespace

Value Builder::rope_table(int positions, int rotary_dim, const RopeFrequencies& frequencies) {
  return op(Op::rope_table, {},
            RopeTableAttrs{.positions = positions, .rotary_dim = rotary_dim, .frequencies = frequencies});
}
Value Builder::rope(Value qkv, Value positions, Value table, Heads heads, bool interleaved) {
  return op(Op::rope, {qkv, positions, table},
            RopeAttrs{.heads = heads.query, .kv_heads = heads.key, .interleaved = interleaved});
}

constinit const OpDef detail::op_defs::rope_table = {
    .n_in = 0,
    .infer_outputs = infer_rope_table,
    .flops = no_flops,
    .launch = launch_rope_table,
};
constinit const OpDef detail::op_defs::rope = {
    .n_in = 3,
    .infer_outputs = infer_rope,
    .vjp = vjp_rope,
    .in_place = {.out = 0, .in = 0},
    .flops = per_element,
    .launch = launch_rope,
    .shard = shard_rope,
    .operand_columns = rope_columns,
};

}  // namespace strata
