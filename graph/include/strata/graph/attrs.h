#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <strata/graph/gemm_attrs.h>

namespace strata {

/// An op of the list in op_list.h, which names the enumerators.
enum class Op : std::uint8_t;

/// The attributes of an op without any.
struct NoAttrs {
  friend bool operator==(const NoAttrs&, const NoAttrs&) = default;
};

namespace detail {

/// What Attrs knows of the type that it holds. There is one for each type, so its address identifies the
/// type.
struct AttrsType {
  const std::type_info& type;
  bool (*equal)(const std::byte* a, const std::byte* b);
  const GemmAttrs* (*gemm)(const std::byte* attrs);  ///< null if the type has no GemmAttrs
};
template <class T>
const T* attrs_at(const std::byte* bytes) noexcept {
  return std::launder(reinterpret_cast<const T*>(bytes));
}
template <class T>
constexpr AttrsType describe_attrs() noexcept {
  AttrsType of{typeid(T),
               [](const std::byte* a, const std::byte* b) { return *attrs_at<T>(a) == *attrs_at<T>(b); },
               nullptr};
  if constexpr (requires(const T& attrs) { attrs.gemm; })
    of.gemm = [](const std::byte* attrs) { return &attrs_at<T>(attrs)->gemm; };
  return of;
}
template <class T>
inline constexpr AttrsType kAttrsType = describe_attrs<T>();

[[noreturn]] void wrong_attrs(const std::type_info& wanted, const std::type_info& held) noexcept;

}  // namespace detail

/// The constant attributes of one instruction, of the type that the list of ops states for its op. A plain
/// value that holds them in place. It knows no list of types, so that whoever passes instructions on depends
/// on no op.
class Attrs {
 public:
  static constexpr std::size_t kMaxBytes = 144;  ///< the largest attributes

  Attrs() noexcept : Attrs(NoAttrs{}) {}
  template <class T>
  requires std::is_class_v<T> Attrs(const T& of)  // NOLINT(google-explicit-constructor)
  noexcept : type_(&detail::kAttrsType<T>) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= alignof(std::int64_t));
    static_assert(sizeof(T) <= kMaxBytes, "raise kMaxBytes: these are the largest attributes");
    new (bytes_) T(of);
  }

  /// The attributes of an op whose attributes have type T. Aborts if these have another type.
  template <class T>
  const T& as() const noexcept {
    const T* const held = get_if<T>();
    if (held == nullptr) detail::wrong_attrs(typeid(T), type_->type);
    return *held;
  }
  template <class T>
  T& as() noexcept {
    return const_cast<T&>(std::as_const(*this).as<T>());
  }
  /// The same, or null if these have another type.
  template <class T>
  const T* get_if() const noexcept {
    return type_ == &detail::kAttrsType<T> ? detail::attrs_at<T>(bytes_) : nullptr;
  }
  /// The attributes that all GEMMs have; null if these are not the attributes of a GEMM.
  const GemmAttrs* gemm() const noexcept { return type_->gemm == nullptr ? nullptr : type_->gemm(bytes_); }
  GemmAttrs* gemm() noexcept { return const_cast<GemmAttrs*>(std::as_const(*this).gemm()); }
  bool has_gemm_workspace() const noexcept { return gemm() != nullptr && gemm()->workspace; }
  /// Whether the type is the one that the list states for `op`.
  bool belong_to(Op op) const noexcept;
  friend bool operator==(const Attrs& a, const Attrs& b) noexcept {
    return a.type_ == b.type_ && a.type_->equal(a.bytes_, b.bytes_);
  }

 private:
  const detail::AttrsType* type_;
  alignas(std::int64_t) std::byte bytes_[kMaxBytes] = {};
};

}  // namespace strata
