#pragma once

#include <cstdint>

#include <strata/graph/attrs.h>
#include <strata/graph/op_attrs.h>
#include <strata/parallel/collective.h>
#include <strata/runtime/tensor_view.h>

namespace strata::detail {

inline ConstBufferView bytes_of(const TensorView& view) { return {view.data, view.bytes()}; }
inline BufferView writable(const TensorView& view) { return {view.data, view.bytes()}; }

/// The collective of an instruction on these operands. It reduces in place, in `out`.
Collective collective_of(Op op, const CollectiveAttrs& attrs, const TensorView& in, const TensorView& out);
/// Bytes that this rank sends in it.
std::uint64_t sent_bytes(Op op, const CollectiveAttrs& attrs, const TensorView& in, const TensorView& out);
/// Whether only neighbours along the axis take part.
bool is_among_neighbours(Op op) noexcept;
/// Whether it replaces what is in `out`, to which the operand has to be copied before.
bool reduces_in_place(Op op) noexcept;

}  // namespace strata::detail
