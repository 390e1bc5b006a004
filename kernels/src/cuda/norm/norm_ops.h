#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/norm/norm_math.h"

/// The norms as functions of rows and elements, for kernels that read a row from memory (norm_row) and those
/// that stage it in shared memory (staged_norms.h).
namespace strata::kernels::detail {

/// What a row is: a token that is normalized by its mean and variance, or by its mean square, or a head of a
/// row of queries, keys and values.
enum class NormKind { layernorm, rmsnorm, qk_norm };

/// The layout of a qkv row: `heads` query heads of n elements, then `kv_heads` key heads of m elements, and
/// as many value heads, which are normalized without a weight if `values` is true, and else are not.
struct QkvRowLayout {
  std::int64_t heads, kv_heads, n, m;
  bool values = false;
  STRATA_HD std::int64_t total_heads() const { return heads + 2 * kv_heads; }
  STRATA_HD std::int64_t weighted_heads() const { return heads + kv_heads; }
  STRATA_HD std::int64_t normed_heads() const { return values ? total_heads() : weighted_heads(); }
  STRATA_HD std::int64_t width() const { return heads * n + 2 * kv_heads * m; }
  STRATA_HD std::int64_t at(std::int64_t head) const {
    return head < heads ? head * n : heads * n + (head - heads) * m;
  }
  STRATA_HD std::int64_t head_dim(std::int64_t head) const { return head < heads ? n : m; }
};

/// The weight that a row is multiplied by; `unit` is 1. Rows with `none` are copied.
enum class RowWeight { first, key, unit, none };

/// Where a row is: its first element, its length, its weight, and the index of its statistics.
struct NormedRow {
  std::int64_t at, length;
  RowWeight weight;
  std::int64_t stat;
};

/// The rows of a norm. For qk_norm, row i is head i % total_heads() of token i / total_heads().
template <class T, NormKind kNorm>
struct NormRows {
  const T* weight;
  std::int64_t count, length;  ///< without the length where the heads of qkv rows have two lengths
  const T* k_weight = nullptr;
  QkvRowLayout heads = {};

  STRATA_HD NormedRow row(std::int64_t i) const {
    if constexpr (kNorm == NormKind::qk_norm) {
      // Rows are fewer than 2^31 (norms.cu), and a 64-bit division would be a function call.
      const auto all = static_cast<std::uint32_t>(heads.total_heads());
      const std::uint32_t t = static_cast<std::uint32_t>(i) / all;
      const std::int64_t head = static_cast<std::uint32_t>(i) - t * all;
      const RowWeight of_head = head < heads.heads ? RowWeight::first : RowWeight::key;
      return {t * heads.width() + heads.at(head), heads.head_dim(head),
              head < heads.weighted_heads() ? of_head
              : heads.values                ? RowWeight::unit
                                            : RowWeight::none,
              t * heads.normed_heads() + head};
    } else {
      return {i * length, length, RowWeight::first, i};
    }
  }
  /// Chosen here, not kept in shared memory: of an address from there, it is not known where it points to.
  STRATA_HD const T* weight_of(RowWeight row) const {
    return kNorm == NormKind::qk_norm && row == RowWeight::key ? k_weight : weight;
  }
  STRATA_HD static bool is_copied(RowWeight row) {
    return kNorm == NormKind::qk_norm && row == RowWeight::none;
  }
  STRATA_HD static bool is_unit(RowWeight row) {
    return kNorm == NormKind::qk_norm && row == RowWeight::unit;
  }
};

/// y = norm(x), or norm(x + added), for which `sum` is written.
template <class T, NormKind kNorm>
struct NormForward {
  static constexpr NormKind kKind = kNorm;
  static constexpr int kStaged = 1;  ///< tensors that are read more than once
  using Element = T;

  NormRows<T, kNorm> rows;
  const T* x;
  T* y;
  float* rstd;
  float eps, offset = 0;
  float* mean = nullptr;
  const T* bias = nullptr;
  const T* added = nullptr;
  T* sum = nullptr;

  /// The statistics of row `row`, of which `x` and `dy` are the elements; they are written, too.
  template <class Lanes>
  STRATA_DEVICE_INLINE RowStats stats(const Lanes& lanes, const NormedRow& row, const T* of_x,
                                      const T*) const {
    RowStats s;
    if constexpr (kNorm == NormKind::layernorm)
      s = layernorm_stats(lanes, of_x, eps, row.length);
    else
      s = rmsnorm_stats(lanes, of_x, eps, row.length);
    if (lanes.is_leader()) {
      if constexpr (kNorm == NormKind::layernorm) mean[row.stat] = s.mean;
      rstd[row.stat] = s.rstd;
    }
    return s;
  }
  STRATA_HD const T* one() const { return x; }
  STRATA_HD const T* other() const { return nullptr; }
  STRATA_HD T* out() const { return y; }
  /// The operand of an element that is read once: the bias. Null if there is none.
  STRATA_HD const T* once(std::int64_t, std::int64_t column) const {
    return kNorm == NormKind::layernorm ? bias + column : nullptr;
  }
  STRATA_HD T element(const RowStats& s, T of_x, T, T weight, T of_bias) const {
    if constexpr (kNorm == NormKind::layernorm)
      return layernorm_element(s, of_x, weight, of_bias);
    else
      return rmsnorm_element(s, of_x, weight, offset);
  }
  /// The weight of rows without one.
  STRATA_HD T unit() const { return from_f32<T>(1.0f - offset); }
  /// What a row that is not normalized has.
  STRATA_HD static T copied(T of_x, T) { return of_x; }
  STRATA_HD bool copies() const { return x != y; }
};

/// dx, plus `residual` unless that is null. The gradients of the parameters are column sums.
template <class T, NormKind kNorm>
struct NormBackward {
  static constexpr NormKind kKind = kNorm;
  static constexpr int kStaged = 2;
  using Element = T;

  NormRows<T, kNorm> rows;
  const T *x, *dy;
  T* dx;
  const float* rstd;
  float offset = 0;
  const float* mean = nullptr;
  const T* residual = nullptr;

  template <class Lanes>
  STRATA_DEVICE_INLINE RowStats stats(const Lanes& lanes, const NormedRow& row, const T* of_x,
                                      const T* of_dy) const {
    RowStats s;
    s.rstd = rstd[row.stat];
    if constexpr (kNorm == NormKind::layernorm) {
      s.mean = mean[row.stat];
      return layernorm_back_stats(lanes, s, of_x, rows.weight_of(row.weight), of_dy, row.length);
    } else {
      if (rows.is_unit(row.weight))
        return rmsnorm_back_stats(
            lanes, s, of_x, [](std::int64_t) { return 1.0f; }, of_dy, row.length);
      const T* const weight = rows.weight_of(row.weight);
      return rmsnorm_back_stats(
          lanes, s, of_x, [&](std::int64_t i) { return to_f32(weight[i]) + offset; }, of_dy, row.length);
    }
  }
  STRATA_HD const T* one() const { return x; }
  STRATA_HD const T* other() const { return dy; }
  STRATA_HD T* out() const { return dx; }
  STRATA_HD const T* once(std::int64_t at, std::int64_t) const {
    return residual == nullptr ? nullptr : residual + at;
  }
  STRATA_HD T element(const RowStats& s, T of_x, T of_dy, T weight, T of_residual) const {
    float back;
    if constexpr (kNorm == NormKind::layernorm)
      back = layernorm_back_element(s, of_x, weight, of_dy);
    else
      back = rmsnorm_back_element(s, of_x, weight, of_dy, offset);
    return from_f32<T>(residual != nullptr ? to_f32(of_residual) + back : back);
  }
  STRATA_HD T unit() const { return from_f32<T>(1.0f - offset); }
  STRATA_HD static T copied(T, T of_dy) { return of_dy; }
  STRATA_HD bool copies() const { return dy != dx; }
};

/// Row `i` by the lanes of one half warp, which read its elements from memory each time: for rows that are
/// too long to stage. Each lane reads only the elements of `sum` that it wrote.
template <class Lanes, class Op>
STRATA_DEVICE_INLINE void norm_row(const Lanes& lanes, const Op& op, std::int64_t i) {
  using T = typename Op::Element;
  const NormedRow row = op.rows.row(i);
  const T *of_x = op.one() + row.at, *of_dy = Op::kStaged > 1 ? op.other() + row.at : of_x;
  T* const into = op.out() + row.at;
  if constexpr (Op::kStaged == 1) {
    if (op.added != nullptr) {
      T* const sum = op.sum + row.at;
      lanes.for_each(row.length, [&](std::int64_t e) { sum[e] = stored_add(of_x[e], op.added[row.at + e]); });
      of_x = of_dy = sum;
    }
  }
  if (op.rows.is_copied(row.weight)) {
    if (op.copies())
      lanes.for_each(row.length, [&](std::int64_t e) { into[e] = Op::copied(of_x[e], of_dy[e]); });
    return;
  }
  const RowStats s = op.stats(lanes, row, of_x, of_dy);
  const bool is_unit = op.rows.is_unit(row.weight);
  const T* const weight = op.rows.weight_of(row.weight);
  lanes.for_each(row.length, [&](std::int64_t e) {
    const T* const once = op.once(row.at + e, e);
    into[e] =
        op.element(s, of_x[e], of_dy[e], is_unit ? op.unit() : weight[e], once == nullptr ? T{} : *once);
  });
}

}  // namespace strata::kernels::detail
