#include <exception>

#include <strata/runtime/str.h>

#include "io/safetensors_header.h"

namespace strata::detail {
namespace {

Status check_specs(const std::vector<TensorSpec>& specs) {
  if (specs.size() > kSafetensorsMaxTensors)
    return Status::error(Code::invalid, str(specs.size(), " tensors, at most ", kSafetensorsMaxTensors));
  for (const TensorSpec& spec : specs) {
    if (spec.name.size() > kSafetensorsMaxNameBytes)
      return Status::error(Code::invalid, str(detail::quoted(spec.name), ": a name of ", spec.name.size(),
                                              " bytes, at most ", kSafetensorsMaxNameBytes));
    if (spec.name == "__metadata__")
      return Status::error(Code::invalid, "a tensor may not be named __metadata__");
  }
  const auto sorted = sort_names(specs);
  return sorted ? Status::ok() : Status::error(Code::invalid, std::string(sorted.error().message()));
}

Result<std::vector<std::uint64_t>> data_ends(const std::vector<TensorSpec>& specs) {
  std::vector<std::uint64_t> ends;
  std::uint64_t end = 0;
  for (const TensorSpec& spec : specs) {
    STRATA_TRY_ASSIGN(const std::uint64_t bytes, safetensors_bytes(spec.name, spec.dtype, spec.shape));
    if (__builtin_add_overflow(end, bytes, &end) || end > (std::uint64_t{1} << 62))
      return Status::error(Code::invalid,
                           str(detail::quoted(spec.name), ": the tensors up to here exceed 2^62 bytes"));
    ends.push_back(end);
  }
  return ends;
}

Result<std::string> header_text(const std::vector<TensorSpec>& specs, const std::vector<std::uint64_t>& ends,
                                const std::map<std::string, std::string>& metadata) {
  try {
    std::string text = safetensors_header_text(specs, ends, metadata);
    if (text.size() > kSafetensorsMaxHeaderBytes)
      return Status::error(Code::invalid,
                           str("a header of ", text.size(), " bytes, at most ", kSafetensorsMaxHeaderBytes));
    return text;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {  // the JSON writer refuses names that are not UTF-8
    return Status::error(Code::invalid, str("writing the header: ", e.what()));
  }
}

}  // namespace

Result<SafetensorsLayout> lay_out_safetensors(const std::vector<TensorSpec>& specs,
                                              const std::map<std::string, std::string>& metadata) {
  STRATA_TRY(check_specs(specs));
  SafetensorsLayout layout;
  STRATA_TRY_ASSIGN(layout.ends, data_ends(specs));
  STRATA_TRY_ASSIGN(layout.header, header_text(specs, layout.ends, metadata));
  return layout;
}

}  // namespace strata::detail
