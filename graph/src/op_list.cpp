#include <strata/graph/op_list.h>

#include <array>

#include <strata/graph/op_attrs.h>
#include <strata/runtime/assert.h>

namespace strata {

const char* op_name(Op op) noexcept {
#define STRATA_NAME(name, attrs) #name,
  static constexpr std::array<const char*, kOps> kNames = {STRATA_GRAPH_OPS(STRATA_NAME)};
#undef STRATA_NAME
  return kNames[static_cast<std::size_t>(op)];
}

void detail::wrong_attrs(const std::type_info& wanted, const std::type_info& held) noexcept {
  STRATA_ASSERT(false, "the attributes of an instruction are ", held.name(), ", not ", wanted.name());
}

bool Attrs::belong_to(Op op) const noexcept {
#define STRATA_TYPE(name, attrs) &detail::kAttrsType<attrs>,
  static constexpr std::array<const detail::AttrsType*, kOps> kTypes = {STRATA_GRAPH_OPS(STRATA_TYPE)};
#undef STRATA_TYPE
  return type_ == kTypes[static_cast<std::size_t>(op)];
}

}  // namespace strata
