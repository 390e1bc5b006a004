#include "hf/stored/bnb_matrix.h"

#include <algorithm>
#include <cstring>

#include <fmt/ranges.h>

#include <strata/kernels/weight_quant.h>
#include <strata/runtime/config/json_problem.h>
#include <strata/runtime/str.h>

#include "hf/folder_files.h"
#include <strata/runtime/config/strict_json.h>

namespace strata::detail {
namespace {

using kernels::kWeightGroup;
using kernels::QuantizedPart;
using kernels::WeightFormat;

constexpr std::int64_t kWeightBlock = kernels::traits_of(WeightFormat::nf4).block_columns;

constexpr std::uint64_t kMaxStateBytes = 64 << 10;
constexpr const char* kNf4State = ".quant_state.bitsandbytes__nf4";

Result<std::vector<float>> read_floats(const StoredTensor& tensor, std::size_t n) {
  std::vector<float> values(n);
  STRATA_TRY(tensor.file->read_range(*tensor.entry, 0, std::as_writable_bytes(std::span(values))));
  return values;
}

/// A table of values that codes stand for must be the one that the kernels have.
Status check_map(const std::string& name, std::span<const float> levels, const FindTensor& find,
                 std::vector<std::string>& names) {
  STRATA_TRY_ASSIGN(const StoredTensor map, expect_tensor(name, "F32", std::ssize(levels), find, names));
  STRATA_TRY_ASSIGN(const std::vector<float> values, read_floats(map, levels.size()));
  for (std::size_t i = 0; i < levels.size(); ++i)
    if (values[i] != levels[i])
      return Status::error(Code::unsupported, str(name, ": code ", i, " stands for ", values[i], ", not for ",
                                                  levels[i], ", which is not supported"));
  return {};
}

// To evaluate on a CPU with AVX-512 BF16, bitsandbytes (0.50) packs a matrix in another way, with its scales
// rounded and transposed. When it is saved, the values are unpacked, but without double quantization the
// scales stay as they are, and bitsandbytes itself reads other values then.
Status check_not_packed(const StoredTensor& scales, const std::string& weight) {
  if (scales.entry == nullptr || scales.entry->dtype != "BF16") return {};
  return Status::error(
      Code::unsupported,
      str(weight, ".absmax is BF16 ", shape_text(scales.entry->shape),
          ", and not F32: bitsandbytes has saved the model after an evaluation on a CPU, with "
          "scales that are rounded and transposed; quantize the model again and save it before it "
          "is evaluated"));
}

/// The JSON of a quantized matrix.
struct QuantState {
  std::string type;
  std::int64_t block = 0, nested_block = 0;
  double nested_offset = 0;
  std::vector<std::int64_t> shape;
};

Result<QuantState> quant_state(const std::string& name, const StoredTensor& tensor) {
  std::uint64_t bytes = 1;
  for (const std::uint64_t extent : tensor.entry->shape) bytes *= extent;
  if (tensor.entry->dtype != "U8" || bytes > kMaxStateBytes)
    return wrong_tensor(name, str(tensor.entry->dtype, " ", shape_text(tensor.entry->shape)),
                        "U8, the text of an object");
  std::string text(bytes, '\0');
  STRATA_TRY(tensor.file->read_range(*tensor.entry, 0, std::as_writable_bytes(std::span(text))));
  try {
    auto parsed = parse_strict_json(text);
    if (!parsed.has_value()) return parsed.status().annotate(name);
    const nlohmann::json& fields = *parsed;
    QuantState state;
    state.type = fields.at("quant_type").get<std::string>();
    state.block = fields.at("blocksize").get<std::int64_t>();
    state.nested_block = fields.value("nested_blocksize", std::int64_t{0});
    state.nested_offset = fields.value("nested_offset", 0.0);
    state.shape = fields.at("shape").get<std::vector<std::int64_t>>();
    return state;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    return Status::error(Code::corrupt, str(name, ": ", json_problem(e.what())));
  }
}

}  // namespace

bool BnbMatrix::is_one(const std::string& weight, const FindTensor& find) {
  const StoredTensor values = find(weight);
  return values.entry != nullptr && (values.entry->dtype == "U8" || values.entry->dtype == "I8");
}

Result<std::unique_ptr<StoredMatrix>> BnbMatrix::open(const StoredWeight& weight, const FindTensor& find,
                                                      std::vector<std::string>& names) {
  std::unique_ptr<BnbMatrix> made(
      new BnbMatrix({WeightFormat::nf4, weight.shape.columns, {weight.shape.rows()}}));
  const StoredTensor values = find(weight.name);
  names.push_back(weight.name);
  STRATA_TRY(values.entry->dtype == "I8" ? made->open_int8(weight.name, find, names)
                                         : made->open_nf4(weight.name, find, names));
  return std::unique_ptr<StoredMatrix>(std::move(made));
}

Status BnbMatrix::open_nf4(const std::string& weight, const FindTensor& find,
                           std::vector<std::string>& names) {
  if (find(weight + ".quant_state.bitsandbytes__fp4").entry != nullptr)
    return Status::error(Code::unsupported,
                         str(weight, " is quantized to fp4, which is not supported; nf4 is"));
  const StoredTensor about = find(weight + kNf4State);
  if (about.entry == nullptr) return Status::error(Code::corrupt, str(weight, kNf4State, " is missing"));
  names.push_back(weight + kNf4State);
  STRATA_TRY_ASSIGN(const QuantState state, quant_state(names.back(), about));
  const bool nested = state.nested_block != 0;
  if (state.type != "nf4" || state.block != kWeightBlock || (nested && state.nested_block != kWeightGroup))
    return Status::error(Code::unsupported,
                         str(weight, " is quantized to ", state.type, " in blocks of ", state.block,
                             nested ? str(" and groups of ", state.nested_block) : "",
                             "; nf4 in blocks of 64, and groups of 256, is supported"));
  if (state.shape != std::vector<std::int64_t>{matrix_.rows(), matrix_.columns})
    return Status::error(Code::corrupt,
                         str(weight, " is a matrix [", fmt::format("{}", fmt::join(state.shape, ", ")),
                             "], but the model needs [", matrix_.rows(), ", ", matrix_.columns, "]"));
  matrix_.format = nested ? WeightFormat::nf4_dq : WeightFormat::nf4;
  const QuantizedPart part = matrix_.part(0);
  STRATA_TRY_ASSIGN(values_, expect_tensor(weight, "U8", (part.elems + 1) / 2, find, names));
  STRATA_TRY(check_map(weight + ".quant_map", kernels::nf4_levels(), find, names));
  if (!nested) STRATA_TRY(check_not_packed(find(weight + ".absmax"), weight));
  STRATA_TRY_ASSIGN(scales_,
                    expect_tensor(weight + ".absmax", nested ? "U8" : "F32", part.blocks, find, names));
  if (!nested) return {};
  STRATA_TRY_ASSIGN(const StoredTensor map,
                    expect_tensor(weight + ".nested_quant_map", "F32", kernels::kScaleCodes, find, names));
  STRATA_TRY_ASSIGN(map_, read_floats(map, static_cast<std::size_t>(kernels::kScaleCodes)));
  STRATA_TRY_ASSIGN(group_scales_, expect_tensor(weight + ".nested_absmax", "F32", part.groups, find, names));
  mean_ = static_cast<float>(state.nested_offset);
  return {};
}

// Outliers are chosen from activations, so that the file has none; all values are in 8 bits.
Status BnbMatrix::open_int8(const std::string& weight, const FindTensor& find,
                            std::vector<std::string>& names) {
  matrix_.format = WeightFormat::int8;
  STRATA_TRY_ASSIGN(values_, expect_tensor(weight, "I8", matrix_.n_elems(), find, names));
  const std::string base = weight.substr(0, weight.rfind(".weight"));
  STRATA_TRY_ASSIGN(scales_, expect_tensor(base + ".SCB", "F32", matrix_.rows(), find, names));
  if (find(base + ".weight_format").entry != nullptr) names.push_back(base + ".weight_format");
  return {};
}

bool BnbMatrix::has_bytes() const noexcept {
  return matrix_.format != WeightFormat::int8 || matrix_.columns % kWeightBlock == 0;
}

Status BnbMatrix::read_scales(std::int64_t first_block, std::span<float> into) const {
  // A block has the scale of the row that begins in it, or before it.
  if (matrix_.format == WeightFormat::int8) {
    const std::int64_t last =
        std::min((first_block + std::ssize(into) - 1) * kWeightBlock / matrix_.columns, matrix_.rows() - 1);
    const std::int64_t first = first_block * kWeightBlock / matrix_.columns;
    std::vector<float> rows(static_cast<std::size_t>(last - first + 1));
    STRATA_TRY(scales_.file->read_range(*scales_.entry, static_cast<std::uint64_t>(first) * sizeof(float),
                                        std::as_writable_bytes(std::span(rows))));
    for (std::size_t i = 0; i < into.size(); ++i)
      into[i] = rows[static_cast<std::size_t>(
          (first_block + static_cast<std::int64_t>(i)) * kWeightBlock / matrix_.columns - first)];
    return {};
  }
  if (matrix_.format == WeightFormat::nf4)
    return scales_.file->read_range(*scales_.entry, static_cast<std::uint64_t>(first_block) * sizeof(float),
                                    std::as_writable_bytes(into));
  std::vector<std::uint8_t> codes(into.size());
  STRATA_TRY(scales_.file->read_range(*scales_.entry, static_cast<std::uint64_t>(first_block),
                                      std::as_writable_bytes(std::span(codes))));
  STRATA_TRY_ASSIGN(const std::vector<float> groups,
                    read_floats(group_scales_, static_cast<std::size_t>(matrix_.part(0).groups)));
  kernels::dequantize_scales(codes, first_block, groups, map_, mean_, into);
  return {};
}

Status BnbMatrix::read(std::int64_t begin, std::span<float> into) const {
  if (matrix_.format == WeightFormat::int8 && !has_bytes()) return read_rows(begin, into);
  const std::int64_t first = begin / kWeightBlock, end = begin + std::ssize(into);
  std::vector<float> scales(static_cast<std::size_t>((end + kWeightBlock - 1) / kWeightBlock - first));
  STRATA_TRY(read_scales(first, scales));
  const bool is_int8 = matrix_.format == WeightFormat::int8;
  const std::int64_t from = first * kWeightBlock;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(is_int8 ? end - from : (end - from + 1) / 2));
  STRATA_TRY(values_.file->read_range(*values_.entry, static_cast<std::uint64_t>(is_int8 ? from : from / 2),
                                      std::as_writable_bytes(std::span(codes))));
  kernels::dequantize_weights(matrix_, codes.data(), scales, begin - from, into);
  return {};
}

// A row has one scale, wherever its blocks of 64 would begin.
Status BnbMatrix::read_rows(std::int64_t begin, std::span<float> into) const {
  std::vector<std::uint8_t> codes(into.size());
  STRATA_TRY(values_.file->read_range(*values_.entry, static_cast<std::uint64_t>(begin),
                                      std::as_writable_bytes(std::span(codes))));
  STRATA_TRY_ASSIGN(const std::vector<float> scales,
                    read_floats(scales_, static_cast<std::size_t>(matrix_.rows())));
  for (std::size_t done = 0; done < into.size();) {
    const std::int64_t at = begin + static_cast<std::int64_t>(done), row = at / matrix_.columns;
    const std::size_t n =
        std::min(into.size() - done, static_cast<std::size_t>((row + 1) * matrix_.columns - at));
    const std::vector<float> of_blocks(n / kWeightBlock + 1, scales[static_cast<std::size_t>(row)]);
    kernels::dequantize_weights(matrix_, codes.data() + done, of_blocks, 0, into.subspan(done, n));
    done += n;
  }
  return {};
}

Status BnbMatrix::read_bytes(std::int64_t begin, std::span<std::byte> into) const {
  std::fill(into.begin(), into.end(), std::byte{0});
  const QuantizedPart part = matrix_.part(0);
  const auto of_file = [](const StoredTensor& tensor) {
    return [&tensor](std::int64_t at, std::span<std::byte> some) {
      return tensor.file->read_range(*tensor.entry, static_cast<std::uint64_t>(at), some);
    };
  };
  const bool is_int8 = matrix_.format == WeightFormat::int8;
  STRATA_TRY(
      copy_section(part.values, is_int8 ? part.elems : (part.elems + 1) / 2, begin, into, of_file(values_)));
  if (is_int8) {
    return copy_section(
        part.scales, part.blocks * 4, begin, into, [&](std::int64_t at, std::span<std::byte> some) {
          const std::int64_t first = at / 4;
          std::vector<float> scales(some.size() / 4 + 2);
          const std::int64_t n = std::min(std::ssize(scales), part.blocks - first);
          STRATA_TRY(read_scales(first, std::span(scales).first(static_cast<std::size_t>(n))));
          std::memcpy(some.data(), reinterpret_cast<const std::byte*>(scales.data()) + at % 4, some.size());
          return Status::ok();
        });
  }
  const bool nested = matrix_.format == WeightFormat::nf4_dq;
  STRATA_TRY(copy_section(part.scales, part.blocks * (nested ? 1 : 4), begin, into, of_file(scales_)));
  if (!nested) return {};
  STRATA_TRY(copy_section(part.group_scales, part.groups * 4, begin, into, of_file(group_scales_)));
  STRATA_TRY(copy_section(
      part.map, kernels::kScaleCodes * 4, begin, into, [&](std::int64_t at, std::span<std::byte> some) {
        std::memcpy(some.data(), reinterpret_cast<const std::byte*>(map_.data()) + at, some.size());
        return Status::ok();
      }));
  return copy_section(part.mean, 4, begin, into, [&](std::int64_t at, std::span<std::byte> some) {
    std::memcpy(some.data(), reinterpret_cast<const std::byte*>(&mean_) + at, some.size());
    return Status::ok();
  });
}

}  // namespace strata::detail
