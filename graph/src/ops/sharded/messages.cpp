#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// Messages from one rank along an axis of the mesh to another one, which travel while both compute.
// send_begin: (x) -> sent [0]
// send_end: (sent, x) -> left [0]; keeps x until it has left
// receive_begin: () -> y, which is not to be read before
// receive_end: (y) -> y
// A program's messages have numbers, since an end follows its begin.

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

const std::vector<OutputSpec> kNothing = {{"nothing", {0}}};

bool is_what_is_sent(const ValueInfo* x, const MessageAttrs& a) { return has_type(x, a.shape, a.dtype); }
std::string wanted(const MessageAttrs& a) { return str("x ", to_string(a.dtype), to_string(a.shape)); }

Specs infer_send_begin(In in, const Attrs& attrs) {
  const auto& a = attrs.as<MessageAttrs>();
  if (!is_what_is_sent(in[0], a)) return mismatch(wanted(a), in);
  return kNothing;
}
Specs infer_send_end(In in, const Attrs& attrs) {
  const auto& a = attrs.as<MessageAttrs>();
  if (!has_type(in[0], {0}, DType::f32) || !is_what_is_sent(in[1], a))
    return mismatch(str("sent [0], ", wanted(a)), in);
  return kNothing;
}
Specs infer_receive_begin(In, const Attrs& attrs) {
  const auto& a = attrs.as<MessageAttrs>();
  return std::vector<OutputSpec>{{"y", a.shape, a.dtype}};
}
Specs infer_receive_end(In in, const Attrs& attrs) {
  const auto& a = attrs.as<MessageAttrs>();
  if (!is_what_is_sent(in[0], a)) return mismatch(wanted(a), in);
  return std::vector<OutputSpec>{{"y", a.shape, a.dtype}};
}
Status launch_no_message(const OpCall&, Backend&, Stream&) {
  return Status::error(Code::internal, "a message has no kernel; the executor of the program must queue it");
}

constexpr OpDef message(int operands, Specs (&rule)(In, const Attrs&), InPlace in_place = {}) {
  return {.kind = OpKind::message,
          .n_in = operands,
          .infer_outputs = rule,
          .in_place = in_place,
          .flops = no_flops,
          .launch = launch_no_message,
          .adds_to_gradients = false};
}

}  // namespace

constinit const OpDef detail::op_defs::send_begin = message(1, infer_send_begin);
constinit const OpDef detail::op_defs::send_end = message(2, infer_send_end);
constinit const OpDef detail::op_defs::receive_begin = message(0, infer_receive_begin);
constinit const OpDef detail::op_defs::receive_end = message(1, infer_receive_end, {.out = 0, .in = 0});

}  // namespace strata
