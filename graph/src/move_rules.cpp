#include <strata/runtime/str.h>

#include "op_rules.h"

// Shape rules of the moves of activations: a move changes only the kind of memory.

namespace strata::detail::op_rules {
namespace {

const char* to_string(ValueKind kind) {
  return kind == ValueKind::host     ? "on the host"
         : kind == ValueKind::stored ? "on the slow tier"
                                     : "on the device";
}
bool has_kind(const ValueInfo* x, ValueKind kind) { return x != nullptr && x->kind == kind; }

Specs infer_begin(In in, ValueKind from) {
  if (!has_kind(in[0], from)) return mismatch(str("an activation ", to_string(from)), in);
  return std::vector<OutputSpec>{{"moving", in[0]->shape, in[0]->dtype}};
}

Specs infer_end(In in, ValueKind near, ValueKind far) {
  if (!has_kind(in[0], near) || !has_kind(in[1], far) || !has_type(in[1], in[0]->shape, in[0]->dtype))
    return mismatch(str("an activation ", to_string(near), " and the same ", to_string(far)), in);
  return std::vector<OutputSpec>{{"moved", in[0]->shape, in[0]->dtype}};
}

}  // namespace

Specs infer_begin_from_device(In in, const Attrs&) { return infer_begin(in, ValueKind::activation); }
Specs infer_begin_from_host(In in, const Attrs&) { return infer_begin(in, ValueKind::host); }
Specs infer_begin_from_store(In in, const Attrs&) { return infer_begin(in, ValueKind::stored); }
Specs infer_end_at_host(In in, const Attrs&) { return infer_end(in, ValueKind::activation, ValueKind::host); }
Specs infer_end_at_store(In in, const Attrs&) { return infer_end(in, ValueKind::host, ValueKind::stored); }

}  // namespace strata::detail::op_rules
