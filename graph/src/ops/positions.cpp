#include <strata/kernels/rope.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// positions: (doc_start [rows] i32 or none) -> positions [rows] i32

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_positions(In in, const Attrs& attrs) {
  const auto& a = attrs.as<PositionsAttrs>();
  if (a.rows <= 0 || a.seq <= 0 || a.first < 0 || a.rows % a.seq != 0 ||
      (in[0] != nullptr && !has_type(in[0], {a.rows}, DType::i32)))
    return mismatch(str("doc_start [", a.rows, "] i32 or none, a multiple of ", a.seq), in);
  return std::vector<OutputSpec>{{"positions", {a.rows}, DType::i32}};
}
Status launch_positions(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<PositionsAttrs>();
  return kernels::positions_async(backend, stream, {or_none(c.in[0]), c.out[0], a.seq, a.first});
}

}  // namespace

Value Builder::positions(std::int64_t tokens, int seq, Value doc_start) {
  return op(Op::positions, {doc_start},
            PositionsAttrs{.rows = static_cast<std::int32_t>(tokens), .seq = seq});
}

constinit const OpDef detail::op_defs::positions = {
    .n_in = 1,
    .optional_in = 0,
    .infer_outputs = infer_positions,
    .flops = no_flops,
    .launch = launch_positions,
};

}  // namespace strata
