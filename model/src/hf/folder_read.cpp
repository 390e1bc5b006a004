// Reads parameters from a folder's tensors, whole or in parts, as f32 or quantized.
#include <strata/model/hf/folder.h>

#include <algorithm>

#include <strata/runtime/convert.h>
#include <strata/runtime/str.h>

#include "folder_files.h"
#include "gguf/read/model_file.h"
#include "hf/stored/stored_matrix.h"

namespace strata {

Status HfFolder::read_block(const TensorLocation& location, std::int64_t begin, std::span<float> into) const {
  if (gguf_ != nullptr) {
    STRATA_TRY(gguf_->read(location.name, begin, into));
    return check_finite(location.name, begin, into);
  }
  if (location.quantized != nullptr) {
    STRATA_TRY(location.quantized->read(begin, into));
    return check_finite(location.name, begin, into);
  }
  const std::size_t size = size_of(location.dtype);
  const std::uint64_t at = static_cast<std::uint64_t>(begin) * size;
  if (location.dtype == DType::f32) {
    STRATA_TRY(location.file->read_range(*location.entry, at, std::as_writable_bytes(into)));
  } else {
    std::vector<std::byte> raw(into.size() * size);
    STRATA_TRY(location.file->read_range(*location.entry, at, raw));
    STRATA_TRY(widen_to_f32(location.dtype, raw, into));
  }
  return check_finite(location.name, begin, into);
}

Status HfFolder::check_finite(std::string_view tensor, std::int64_t begin,
                              std::span<const float> into) const {
  const std::size_t bad = first_non_finite(into);
  if (bad == into.size()) return {};
  return Status::error(
      Code::corrupt,
      str(path_, ": element ", begin + static_cast<std::int64_t>(bad), " of ", tensor, " is ", into[bad],
          "; weights must be finite: use an earlier checkpoint, or download the file again"));
}

Result<std::int64_t> HfFolder::elements_of(std::string_view param) const {
  std::int64_t n = 0;
  for (const HfTensor& tensor : tensors_)
    if (tensor.param == param) n += tensor.n_elems();
  if (n == 0 || !has(param)) return Status::error(Code::not_found, str(path_, " has no ", param));
  return n;
}

Status HfFolder::read(std::string_view param, std::span<float> into) const {
  STRATA_TRY_ASSIGN(const std::int64_t n, elements_of(param));
  if (n != std::ssize(into))
    return Status::error(Code::invalid,
                         str(param, " has ", n, " elements, ", into.size(), " were requested"));
  STRATA_TRY(read_rows(param, 0, into));
  std::vector<float> block;
  for (const HfTensor& tensor : tensors_) {
    if (tensor.param != param || tensor.layout == HfTensor::Layout::rows) continue;
    const TensorLocation& location = locations_.find(tensor.name)->second;
    for (std::int64_t at = 0; at < tensor.n_elems(); at += detail::kElemsAtOnce) {
      block.resize(static_cast<std::size_t>(std::min(detail::kElemsAtOnce, tensor.n_elems() - at)));
      STRATA_TRY(read_block(location, at, block));
      scatter_hf(tensor, config_, at, block, into);
    }
  }
  return {};
}

Status HfFolder::read_part(std::string_view param, std::int64_t offset, std::span<float> into) const {
  STRATA_TRY_ASSIGN(const std::int64_t n, elements_of(param));
  if (offset < 0 || offset + std::ssize(into) > n)
    return Status::error(Code::invalid, str(param, " has ", n, " elements, ", offset, " to ",
                                            offset + std::ssize(into), " were requested"));
  const bool as_ours = std::all_of(tensors_.begin(), tensors_.end(), [&](const HfTensor& tensor) {
    return tensor.param != param || tensor.layout == HfTensor::Layout::rows;
  });
  if (as_ours) return read_rows(param, offset, into);
  if (rearranged_name_ != param) {
    rearranged_name_.clear();
    rearranged_.resize(static_cast<std::size_t>(n));
    STRATA_TRY(read(param, rearranged_));
    rearranged_name_ = param;
  }
  std::copy_n(rearranged_.begin() + offset, into.size(), into.begin());
  if (offset + std::ssize(into) == n) {
    rearranged_name_.clear();
    rearranged_ = {};
  }
  return {};
}

// The tensors of experts are the parts of their matrices, expert by expert.
Result<bool> HfFolder::read_quantized(std::string_view param, const kernels::QuantizedMatrix& matrix,
                                      std::int64_t offset, std::span<std::byte> into) const {
  std::map<std::int64_t, const HfTensor*> parts;  // keyed by first row
  for (const HfTensor& tensor : tensors_)
    if (tensor.param == param) parts[tensor.first_row] = &tensor;
  if (const auto whole = parts.size() == 1 ? quantized_.find(parts.begin()->second->name) : quantized_.end();
      whole != quantized_.end() && whole->second->matrix() == matrix && whole->second->has_bytes() &&
      parts.begin()->second->layout == HfTensor::Layout::rows) {
    STRATA_TRY(whole->second->read_bytes(offset, into));
    return true;
  }
  const auto of_matrix = static_cast<std::int64_t>(matrix.n_parts());
  if (std::ssize(parts) != matrix.count * of_matrix) return false;
  std::int64_t index = 0;
  for (const auto& [row, tensor] : parts) {
    const auto found = quantized_.find(tensor->name);
    if (found == quantized_.end() || tensor->shape.size() != 2 || tensor->layout != HfTensor::Layout::rows ||
        found->second->format() != matrix.format || !found->second->has_bytes() ||
        static_cast<std::int64_t>(tensor->shape[0]) !=
            matrix.rows_of[static_cast<std::size_t>(index++ % of_matrix)] ||
        static_cast<std::int64_t>(tensor->shape[1]) != matrix.columns)
      return false;
  }
  std::fill(into.begin(), into.end(), std::byte{0});  // also what is between matrices
  const std::int64_t end = offset + std::ssize(into);
  index = 0;
  for (const auto& [row, tensor] : parts) {
    const kernels::QuantizedPart part = matrix.part(static_cast<std::size_t>(index % of_matrix));
    const std::int64_t begins = index++ / of_matrix * matrix.matrix_bytes() + part.values,
                       from = std::max(offset, begins), to = std::min(end, begins + part.end - part.values);
    if (from < to)
      STRATA_TRY(quantized_.at(tensor->name)
                     ->read_bytes(from - begins, into.subspan(static_cast<std::size_t>(from - offset),
                                                              static_cast<std::size_t>(to - from))));
  }
  return true;
}

// Reads tensors with our layout directly into `into`, as far as they overlap the requested part.
Status HfFolder::read_rows(std::string_view param, std::int64_t offset, std::span<float> into) const {
  for (const HfTensor& tensor : tensors_) {
    if (tensor.param != param || tensor.layout != HfTensor::Layout::rows) continue;
    const std::int64_t n = tensor.n_elems();
    const std::int64_t first = tensor.first_row * (n / static_cast<std::int64_t>(tensor.shape[0]));
    const std::int64_t begin = std::max(offset, first);
    const std::int64_t end = std::min(offset + std::ssize(into), first + n);
    for (std::int64_t at = begin; at < end; at += detail::kElemsAtOnce)
      STRATA_TRY(
          read_block(locations_.find(tensor.name)->second, at - first,
                     into.subspan(static_cast<std::size_t>(at - offset),
                                  static_cast<std::size_t>(std::min(detail::kElemsAtOnce, end - at)))));
  }
  return {};
}

}  // namespace strata
