#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// Moves of activations between device, host and slow tier: they change only the kind of memory. The output of
// a begin is in flight: only the matching end may read it.
// offload_begin: (x) -> x in flight to the host; x itself stays readable
// offload_end: (x, x in flight) -> x on the host, in the same bytes; x on the device is dead after this
// store_begin, store_end: the same from the host to the slow tier
// load_begin, load_end: the same from the slow tier back to the host
// fetch_begin: (x on the host) -> x in flight to the device, where its bytes are allocated from here on
// fetch_end: (x in flight, x on the host) -> x on the device, in the same bytes

namespace strata {
namespace {

using namespace detail::op_rules;

const char* place_name(ValueKind kind) {
  return kind == ValueKind::host     ? "on the host"
         : kind == ValueKind::stored ? "on the slow tier"
                                     : "on the device";
}
bool has_kind(const ValueInfo* x, ValueKind kind) { return x != nullptr && x->kind == kind; }

Specs infer_begin(In in, ValueKind from) {
  if (!has_kind(in[0], from)) return mismatch(str("an activation ", place_name(from)), in);
  return std::vector<OutputSpec>{{"moving", in[0]->shape, in[0]->dtype}};
}
Specs infer_end(In in, ValueKind near, ValueKind far) {
  if (!has_kind(in[0], near) || !has_kind(in[1], far) || !has_type(in[1], in[0]->shape, in[0]->dtype))
    return mismatch(str("an activation ", place_name(near), " and the same ", place_name(far)), in);
  return std::vector<OutputSpec>{{"moved", in[0]->shape, in[0]->dtype}};
}

Specs infer_begin_from_device(In in, const Attrs&) { return infer_begin(in, ValueKind::activation); }
Specs infer_begin_from_host(In in, const Attrs&) { return infer_begin(in, ValueKind::host); }
Specs infer_begin_from_store(In in, const Attrs&) { return infer_begin(in, ValueKind::stored); }
// (x on the nearer tier, x on the farther tier), one of which is in flight to the other's tier -> x there.
// The farther tier is the host or the slow tier.
Specs infer_end_at_host(In in, const Attrs&) { return infer_end(in, ValueKind::activation, ValueKind::host); }
Specs infer_end_at_store(In in, const Attrs&) { return infer_end(in, ValueKind::host, ValueKind::stored); }

Status launch_no_move(const OpCall&, Backend&, Stream&) {
  return Status::error(Code::internal, "a move has no kernel; the executor of the program must do it");
}

constexpr OpDef move_begin(Specs (&rule)(In, const Attrs&)) {
  return {
      .kind = OpKind::move, .n_in = 1, .infer_outputs = rule, .flops = no_flops, .launch = launch_no_move};
}
/// An end returns operand `moved`, which is in flight.
constexpr OpDef move_end(Specs (&rule)(In, const Attrs&), int moved) {
  return {.kind = OpKind::move,
          .n_in = 2,
          .infer_outputs = rule,
          .in_place = {.out = 0, .in = moved},
          .flops = no_flops,
          .launch = launch_no_move};
}

}  // namespace

constinit const OpDef detail::op_defs::offload_begin = move_begin(infer_begin_from_device);
constinit const OpDef detail::op_defs::offload_end = move_end(infer_end_at_host, 1);
constinit const OpDef detail::op_defs::store_begin = move_begin(infer_begin_from_host);
constinit const OpDef detail::op_defs::store_end = move_end(infer_end_at_store, 1);
constinit const OpDef detail::op_defs::load_begin = move_begin(infer_begin_from_store);
constinit const OpDef detail::op_defs::load_end = move_end(infer_end_at_store, 0);
constinit const OpDef detail::op_defs::fetch_begin = move_begin(infer_begin_from_host);
constinit const OpDef detail::op_defs::fetch_end = move_end(infer_end_at_host, 0);

}  // namespace strata
