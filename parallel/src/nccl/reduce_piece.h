#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/parallel/collective.h>

#include "reduce_math.h"

// The reduction of one piece out of an inbox, as the kernel of a GPU does it, a vector of elements for each
// thread. The host runs the same functions in tests.
#ifdef __CUDACC__
#define STRATA_REDUCE_INLINE __host__ __device__ __forceinline__
#else
#define STRATA_REDUCE_INLINE inline
#endif

namespace strata::detail {

/// The piece of this rank, and those of the others, which are in the inbox by rank.
struct PieceArgs {
  const std::byte* own;
  const std::byte* inbox;
  std::size_t slot_bytes;  ///< from one piece in the inbox to the next
  int rank, size;
  std::byte* into;  ///< may be `own`
  std::size_t bytes;
  DType dtype;
  Reduction reduction;
};

inline constexpr std::size_t kVectorBytes = 16;

template <class T>
struct alignas(kVectorBytes) ReduceVector {
  static constexpr int kElems = static_cast<int>(kVectorBytes / sizeof(T));
  T values[kElems];
};

template <class T>
struct Piece {
  const T* own;
  const T* inbox;
  std::int64_t slot;  // in elements, like n
  int rank, size;
  T* into;
  std::int64_t n;

  STRATA_REDUCE_INLINE const T* part(int q) const {
    return q == rank ? own : inbox + static_cast<std::int64_t>(q < rank ? q : q - 1) * slot;
  }
};

template <class T>
Piece<T> piece_of(const PieceArgs& a) {
  return {reinterpret_cast<const T*>(a.own),
          reinterpret_cast<const T*>(a.inbox),
          static_cast<std::int64_t>(a.slot_bytes / sizeof(T)),
          a.rank,
          a.size,
          reinterpret_cast<T*>(a.into),
          static_cast<std::int64_t>(a.bytes / sizeof(T))};
}

/// Whether the parts can be read and written in vectors.
inline bool is_aligned(const PieceArgs& a) {
  const auto bits = reinterpret_cast<std::uintptr_t>(a.own) | reinterpret_cast<std::uintptr_t>(a.inbox) |
                    reinterpret_cast<std::uintptr_t>(a.into) | a.slot_bytes;
  return bits % kVectorBytes == 0;
}

template <class T>
std::int64_t n_vectors(const Piece<T>& piece) {
  return (piece.n + ReduceVector<T>::kElems - 1) / ReduceVector<T>::kElems;
}

/// The elements of vector `i`, fewer than kElems if it is the last.
template <bool kAligned, class T, class Op>
STRATA_REDUCE_INLINE void reduce_vector(const Piece<T>& piece, std::int64_t i) {
  using Vector = ReduceVector<T>;
  const std::int64_t first = i * Vector::kElems;
  if (kAligned && first + Vector::kElems <= piece.n) {
    decltype(widen(T{})) values[Vector::kElems] = {};
    for (int q = 0; q < piece.size; ++q) {
      const Vector x = *reinterpret_cast<const Vector*>(piece.part(q) + first);
      for (int j = 0; j < Vector::kElems; ++j)
        values[j] = q == 0 ? widen(x.values[j]) : Op::apply(values[j], widen(x.values[j]));
    }
    Vector y{};
    for (int j = 0; j < Vector::kElems; ++j) y.values[j] = narrow<T>(values[j]);
    *reinterpret_cast<Vector*>(piece.into + first) = y;
    return;
  }
  const std::int64_t end = first + Vector::kElems < piece.n ? first + Vector::kElems : piece.n;
  for (std::int64_t k = first; k < end; ++k)
    piece.into[k] = reduce_element<T, Op>(piece.size, [&](int q) { return piece.part(q)[k]; });
}

/// Returns `f(T, Op)`'s result, called with values of the types of a dtype that check() lets pass.
template <class F>
auto with_types(DType dtype, Reduction reduction, const F& f) {
  const auto with_op = [&](auto type) {
    return reduction == Reduction::sum ? f(type, Sum{}) : f(type, Max{});
  };
  switch (dtype) {
    case DType::f64:
      return with_op(double{});
    case DType::bf16:
      return with_op(bf16{});
    case DType::f16:
      return with_op(f16{});
    case DType::i32:
      return with_op(std::int32_t{});
    default:
      return with_op(float{});
  }
}

}  // namespace strata::detail
#undef STRATA_REDUCE_INLINE
