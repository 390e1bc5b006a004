#pragma once

#include <strata/dispatch/rows.h>

#include "recurrent/conv_math.h"

/// The operands of the ops of causal_conv.h as the kernels take them. Args are theirs.
namespace strata::kernels::detail {

template <class T, class Args>
ConvOperands<T> cached_conv_operands(const Args& a) {
  const std::int64_t rows = dispatch::row_count(a.x);
  return {a.x.template as<T>(),
          a.weight.template as<T>(),
          dispatch::is_present(a.bias) ? a.bias.template as<T>() : nullptr,
          dispatch::row_length(a.x),
          {nullptr, rows, rows, dispatch::row_length(a.weight)},
          a.silu};
}
template <class T, class Args>
ConvOperands<T> conv_operands(const Args& a) {
  ConvOperands<T> c = cached_conv_operands<T>(a);
  c.rows.seq = a.seq;
  if (dispatch::is_present(a.doc_start)) c.rows.doc_start = a.doc_start.template as<std::int32_t>();
  return c;
}
template <class T, class Args>
CachedConv<T> cached_conv(const Args& a) {
  return {a.positions.template as<std::int32_t>(), a.slots.template as<std::int32_t>(),
          dispatch::row_count(a.x), a.state.template as<T>(), a.y.template as<T>()};
}

}  // namespace strata::kernels::detail
