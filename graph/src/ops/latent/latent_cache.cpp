#include <strata/kernels/mixers/latent_cache.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// cached_latents: (latent [R, rank], qkv [R, 3 q_width], positions and slots [R] i32, cache: the state
//   [sequences, capacity, rank + rotated] of the dtype of latent, written in place)
//   -> latents [sequences * capacity, rank]
// latent_keys_values: (kv [sequences * capacity, kv_width], positions and slots [R] i32, the same state)
//   -> keys, values [sequences, heads, capacity, head_dim]

namespace strata {
namespace {

using namespace detail::op_rules;

bool is_cache(const ValueInfo* cache, DType dtype, const kernels::LatentHeads& h) {
  return cache != nullptr && cache->kind == ValueKind::state && cache->dtype == dtype &&
         cache->shape.rank == 3 && cache->shape.dim(2) > h.rotated && h.heads >= 1 && h.plain >= 1 &&
         h.rotated >= 1 && h.value >= 1 && h.value <= h.head_dim();
}
bool are_rows(const ValueInfo* positions, const ValueInfo* slots) {
  return positions != nullptr && positions->shape.rank == 1 &&
         has_type(positions, positions->shape, DType::i32) && has_type(slots, positions->shape, DType::i32);
}
std::string rule_of(const char* operands, const kernels::LatentHeads& h) {
  return str(operands, ", positions and slots [R] i32, and the state [sequences, capacity, rank + ",
             h.rotated, "] of one dtype, for ", h.heads, " heads of ", h.plain, " and ", h.rotated,
             " elements with values of ", h.value);
}

Specs infer_cached_latents(In in, const Attrs& attrs) {
  const auto& h = attrs.as<LatentHeadsAttrs>().heads;
  const bool fit = is_matrix(in[0]) && is_cache(in[4], in[0]->dtype, h) && are_rows(in[2], in[3]) &&
                   in[0]->shape.dim(1) == in[4]->shape.dim(2) - h.rotated &&
                   in[2]->shape.dim(0) == in[0]->shape.dim(0) &&
                   has_type(in[1], {in[0]->shape.dim(0), 3 * h.q_width()}, in[0]->dtype);
  if (!fit) return mismatch(rule_of("latent rows [R, rank], qkv [R, 3 q_width]", h), in);
  return std::vector<OutputSpec>{
      {"latents", {in[4]->shape.dim(0) * in[4]->shape.dim(1), in[0]->shape.dim(1)}, in[0]->dtype}};
}
Status launch_cached_latents(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::cached_latents_async(
      backend, stream,
      {c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.out[0], c.attrs.as<LatentHeadsAttrs>().heads});
}

Specs infer_latent_keys_values(In in, const Attrs& attrs) {
  const auto& h = attrs.as<LatentHeadsAttrs>().heads;
  const bool fit = is_matrix(in[0]) && is_cache(in[3], in[0]->dtype, h) && are_rows(in[1], in[2]) &&
                   has_type(in[0], {in[3]->shape.dim(0) * in[3]->shape.dim(1), h.kv_width()}, in[0]->dtype);
  if (!fit) return mismatch(rule_of("kv [sequences * capacity, kv_width]", h), in);
  const Shape shape = {in[3]->shape.dim(0), h.heads, in[3]->shape.dim(1), h.head_dim()};
  return std::vector<OutputSpec>{{"keys", shape, in[0]->dtype}, {"values", shape, in[0]->dtype}};
}
Status launch_latent_keys_values(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::latent_keys_values_async(
      backend, stream,
      {c.in[0], c.in[1], c.in[2], c.in[3], c.out[0], c.out[1], c.attrs.as<LatentHeadsAttrs>().heads});
}

}  // namespace

Value Builder::cached_latents(Value latent, Value qkv, Value positions, Value slots, Value cache,
                              const kernels::LatentHeads& heads) {
  return op(Op::cached_latents, {latent, qkv, positions, slots, cache}, LatentHeadsAttrs{.heads = heads});
}
KeysValues Builder::latent_keys_values(Value kv, Value positions, Value slots, Value cache,
                                       const kernels::LatentHeads& heads) {
  const Value keys =
      op(Op::latent_keys_values, {kv, positions, slots, cache}, LatentHeadsAttrs{.heads = heads});
  return {keys, output(keys, 1)};
}

constinit const OpDef detail::op_defs::cached_latents = {
    .n_in = 5,
    .infer_outputs = infer_cached_latents,
    .flops = no_flops,
    .launch = launch_cached_latents,
};
constinit const OpDef detail::op_defs::latent_keys_values = {
    .n_in = 4,
    .infer_outputs = infer_latent_keys_values,
    .flops = no_flops,
    .launch = launch_latent_keys_values,
};

}  // namespace strata
