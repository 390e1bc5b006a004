#include <strata/graph/op_list.h>

#include <array>

#include <strata/runtime/assert.h>

namespace strata {

std::string_view to_string(AttentionBackend backend) noexcept {
  switch (backend) {
    case AttentionBackend::mma:
      return "mma";
    case AttentionBackend::wgmma:
      return "wgmma";
    case AttentionBackend::cudnn:
      return "cudnn";
  }
  return "?";
}

const char* op_name(Op op) noexcept {
#define STRATA_NAME(name, attrs) #name,
  static constexpr std::array<const char*, kOps> kNames = {STRATA_GRAPH_OPS(STRATA_NAME)};
#undef STRATA_NAME
  return kNames[static_cast<std::size_t>(op)];
}

void detail::wrong_attrs(const std::type_info& wanted, const std::type_info& held) noexcept {
  STRATA_ASSERT(false, "the attributes of an instruction are ", held.name(), ", not ", wanted.name());
}

const GemmAttrs* Attrs::gemm() const noexcept {
  return std::visit(
      [](const auto& of) -> const GemmAttrs* {
        if constexpr (requires { of.gemm; })
          return &of.gemm;
        else
          return nullptr;
      },
      of_);
}

bool Attrs::belong_to(Op op) const noexcept {
  switch (op) {
#define STRATA_CASE(name, attrs) \
  case Op::name:                 \
    return std::holds_alternative<attrs>(of_);
    STRATA_GRAPH_OPS(STRATA_CASE)
#undef STRATA_CASE
  }
  return false;
}

const std::type_info& Attrs::type() const noexcept {
  return std::visit([](const auto& of) -> const std::type_info& { return typeid(of); }, of_);
}

}  // namespace strata
