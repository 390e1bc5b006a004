#include <algorithm>
#include <map>
#include <set>

#include <strata/runtime/str.h>

#include "hf/stored/stored_forms.h"
#include "hf/whole/written_parts.h"

namespace strata::detail {
namespace {

constexpr std::string_view kPacked = "_packed";
constexpr std::int64_t kPackedValues = 8;  // an I32 has so many of INT4

/// The matrix whose codes the tensor has, by its own extents; an empty name if it has none. The forms of
/// stored_forms.h that say their extents: tiles of FP8, and INT4.
StoredWeight weight_with_codes(const OtherTensor& tensor) {
  if (tensor.shape.size() != 2) return {};
  const auto rows = static_cast<std::int64_t>(tensor.shape[0]),
             columns = static_cast<std::int64_t>(tensor.shape[1]);
  if (tensor.dtype == "F8_E4M3") return {tensor.name, {kernels::WeightFormat::full, columns, {rows}}};
  if (tensor.dtype != "I32" || !tensor.name.ends_with(kPacked)) return {};
  return {tensor.name.substr(0, tensor.name.size() - kPacked.size()),
          {kernels::WeightFormat::full, columns * kPackedValues, {rows}}};
}

using TensorsByName = std::map<std::string, const OtherTensor*, std::less<>>;

TensorsByName by_name(const OtherParts& parts) {
  TensorsByName tensors;
  for (const OtherTensor& tensor : parts.tensors) tensors[tensor.name] = &tensor;
  return tensors;
}

bool has_scales(const std::string& weight, const TensorsByName& tensors) {
  return tensors.contains(weight + "_scale_inv") || tensors.contains(weight + "_scale");
}

WrittenTensor copied(const OtherTensor& tensor) {
  return {tensor.name, tensor.dtype, tensor.shape, tensor.bytes, {&tensor}};
}

WrittenTensor rounded(const StoredWeight& weight, std::shared_ptr<const StoredMatrix> values, DType dtype) {
  const auto rows = static_cast<std::uint64_t>(weight.shape.rows()),
             columns = static_cast<std::uint64_t>(weight.shape.columns);
  WrittenTensor tensor{weight.name, std::string(safetensors_dtype(dtype)), {rows, columns}};
  tensor.bytes = rows * columns * size_of(dtype);
  tensor.values = std::move(values);
  tensor.rounded = dtype;
  return tensor;
}

}  // namespace

Result<std::vector<WrittenTensor>> written_tensors(const OtherParts& parts, const PartsSource& source,
                                                   DType dtype) {
  const FindTensor find = [&](const std::string& name) { return source.find(name); };
  const TensorsByName tensors = by_name(parts);
  std::vector<WrittenTensor> written;
  std::set<const OtherTensor*> taken;
  for (const OtherTensor& tensor : parts.tensors) {
    const StoredWeight weight = weight_with_codes(tensor);
    if (weight.name.empty() || !has_scales(weight.name, tensors)) continue;
    const StoredForm* const form = stored_form_of(weight.name, find);
    std::vector<std::string> names;
    STRATA_TRY_ASSIGN(std::unique_ptr<StoredMatrix> opened, form->open(weight, find, names));
    written.push_back(rounded(weight, std::move(opened), dtype));
    for (const std::string& name : names) {
      const auto at = tensors.find(name);
      if (at == tensors.end())
        return Status::error(Code::corrupt, str(parts.folder, ": ", name, " is no part of ", tensor.name,
                                                " in the record of the other parts"));
      written.back().of.push_back(at->second);
      taken.insert(at->second);
    }
  }
  for (const OtherTensor& tensor : parts.tensors)
    if (!taken.contains(&tensor)) written.push_back(copied(tensor));
  return written;
}

}  // namespace strata::detail

namespace strata {

std::size_t OtherParts::quantized_matrices() const {
  const detail::TensorsByName named = detail::by_name(*this);
  return static_cast<std::size_t>(
      std::count_if(tensors.begin(), tensors.end(), [&](const OtherTensor& tensor) {
        const std::string weight = detail::weight_with_codes(tensor).name;
        return !weight.empty() && detail::has_scales(weight, named);
      }));
}

}  // namespace strata
