#include "io/safetensors_header.h"

#include <array>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <strata/runtime/config/json_problem.h>
#include <strata/runtime/config/json_tree.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

struct DTypeRow {
  std::string_view name;
  std::uint64_t bytes;
  std::optional<DType> dtype;
};
constexpr std::array<DTypeRow, 17> kDTypes = {{
    {"F64", 8, DType::f64},
    {"F32", 4, DType::f32},
    {"F16", 2, DType::f16},
    {"BF16", 2, DType::bf16},
    {"I32", 4, DType::i32},
    {"U16", 2, DType::u16},
    {"U8", 1, DType::u8},
    {"BOOL", 1, std::nullopt},
    {"I8", 1, std::nullopt},
    {"I16", 2, std::nullopt},
    {"U32", 4, std::nullopt},
    {"I64", 8, std::nullopt},
    {"U64", 8, std::nullopt},
    {"F8_E4M3", 1, std::nullopt},
    {"F8_E5M2", 1, std::nullopt},
    {"F8_E8M0", 1, std::nullopt},
    {"C64", 8, std::nullopt},
}};

const DTypeRow* row_of(std::string_view name) noexcept {
  for (const DTypeRow& row : kDTypes)
    if (row.name == name) return &row;
  return nullptr;
}

/// A state machine on the events of the JSON parser instead of a tree: a header of 100 MB never becomes an
/// even larger tree, nesting needs no limit (anything not in the format is refused where it opens), and
/// counts are checked before containers grow.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  detail::SafetensorsHeader header;
  Status failed;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override { return unexpected(str("the number ", value)); }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected(str("the number ", text));
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (at_ == At::shape_items) {
      if (entry().shape.size() == kSafetensorsMaxRank)
        return fail(Code::invalid,
                    str(detail::quoted(entry().name), ": more than ", kSafetensorsMaxRank, " dimensions"));
      entry().shape.push_back(value);
      return true;
    }
    if (at_ != At::offset_items) return unexpected(str("the number ", value));
    if (n_offsets_ == offsets_.size())
      return fail(Code::corrupt, str(detail::quoted(entry().name), ": more than 2 data_offsets"));
    offsets_[n_offsets_++] = value;
    return true;
  }
  bool string(string_t& text) override {
    if (at_ == At::metadata_value) {
      at_ = At::metadata;
      if (!header.metadata.emplace(metadata_key_, text).second)
        return fail(Code::corrupt, str("metadata key ", detail::quoted(metadata_key_), " occurs twice"));
      return true;
    }
    if (at_ != At::dtype) return unexpected(str("the string ", detail::quoted(text)));
    if (row_of(text) == nullptr)
      return fail(Code::unsupported,
                  str(detail::quoted(entry().name), ": unknown dtype ", detail::quoted(text)));
    entry().dtype = text;
    at_ = At::entry;
    return true;
  }
  bool start_object(std::size_t) override {
    if (at_ == At::start)
      at_ = At::root;
    else if (at_ == At::tensor)
      at_ = At::entry;
    else if (at_ == At::metadata_object)
      at_ = At::metadata;
    else
      return unexpected("an object");
    return true;
  }
  bool key(string_t& text) override {
    if (at_ == At::entry) return entry_key(text);
    if (text.size() > kSafetensorsMaxNameBytes)
      return fail(Code::invalid,
                  str("a name of ", text.size(), " bytes, at most ", kSafetensorsMaxNameBytes, " are read"));
    if (at_ == At::metadata) {
      metadata_key_ = text;
      at_ = At::metadata_value;
      return true;
    }
    if (text == "__metadata__") {
      at_ = At::metadata_object;
      return !std::exchange(metadata_seen_, true) || fail(Code::corrupt, "__metadata__ occurs twice");
    }
    if (header.entries.size() == kSafetensorsMaxTensors)
      return fail(Code::invalid, str("more than ", kSafetensorsMaxTensors, " tensors"));
    header.entries.emplace_back().name = text;
    seen_ = {};
    n_offsets_ = 0;
    at_ = At::tensor;
    return true;
  }
  bool end_object() override {
    if (at_ == At::root)
      at_ = At::done;
    else if (at_ == At::metadata)
      at_ = At::root;
    else
      return end_entry();
    return true;
  }
  bool start_array(std::size_t) override {
    if (at_ == At::shape)
      at_ = At::shape_items;
    else if (at_ == At::offsets)
      at_ = At::offset_items;
    else
      return unexpected("an array");
    return true;
  }
  bool end_array() override {
    if (at_ == At::offset_items && n_offsets_ != 2)
      return fail(Code::corrupt, str(detail::quoted(entry().name), ": ", n_offsets_, " data_offsets, not 2"));
    at_ = At::entry;
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception& why) override {
    return fail(Code::corrupt, str("not JSON at byte ", at, ": ", json_problem(why.what())));
  }

 private:
  /// The part of the header that the parser expects next.
  enum class At : std::uint8_t {
    start,
    root,
    tensor,
    entry,
    dtype,
    shape,
    shape_items,
    offsets,
    offset_items,
    metadata_object,
    metadata,
    metadata_value,
    done
  };
  enum Field : std::size_t { dtype_field, shape_field, offsets_field };

  SafetensorsEntry& entry() { return header.entries.back(); }
  bool fail(Code code, std::string message) {
    failed = Status::error(code, std::move(message));
    return false;
  }
  bool unexpected(const std::string& what) {
    const bool in_entry = at_ >= At::tensor && at_ <= At::offset_items;
    if (at_ >= At::metadata_object && at_ != At::done)
      return fail(Code::corrupt,
                  str("metadata ", detail::quoted(metadata_key_), ": ", what, " instead of a string"));
    return fail(Code::corrupt,
                str(in_entry ? detail::quoted(entry().name) : "header", ": ", what, " is not allowed here"));
  }
  bool entry_key(const std::string& text) {
    static constexpr std::array<std::pair<std::string_view, At>, 3> kFields = {
        {{"dtype", At::dtype}, {"shape", At::shape}, {"data_offsets", At::offsets}}};
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      if (text != kFields[i].first) continue;
      at_ = kFields[i].second;
      return !std::exchange(seen_[i], true) ||
             fail(Code::corrupt, str(detail::quoted(entry().name), ": ", text, " occurs twice"));
    }
    return fail(Code::corrupt, str(detail::quoted(entry().name), ": unknown field ", detail::quoted(text)));
  }
  bool end_entry() {
    if (!seen_[dtype_field] || !seen_[shape_field] || !seen_[offsets_field])
      return fail(Code::corrupt, str(detail::quoted(entry().name), ": needs dtype, shape and data_offsets"));
    if (offsets_[0] > offsets_[1])
      return fail(Code::corrupt, str(detail::quoted(entry().name), ": data begins at ", offsets_[0],
                                     " and ends at ", offsets_[1]));
    entry().offset = offsets_[0];
    entry().bytes = offsets_[1] - offsets_[0];
    at_ = At::root;
    return true;
  }

  At at_ = At::start;
  std::array<bool, 3> seen_{};
  std::array<std::uint64_t, 2> offsets_{};
  std::size_t n_offsets_ = 0;
  bool metadata_seen_ = false;
  std::string metadata_key_;
};

}  // namespace

std::string_view safetensors_dtype(DType dtype) noexcept {
  for (const DTypeRow& row : kDTypes)
    if (row.dtype == dtype) return row.name;
  return "";
}

std::optional<DType> dtype_from_safetensors(std::string_view name) noexcept {
  const DTypeRow* row = row_of(name);
  return row == nullptr ? std::nullopt : row->dtype;
}

namespace detail {

std::uint64_t safetensors_element_bytes(std::string_view dtype) noexcept {
  const DTypeRow* row = row_of(dtype);
  return row == nullptr ? 0 : row->bytes;
}

Result<std::uint64_t> safetensors_bytes(std::string_view name, std::string_view dtype,
                                        const std::vector<std::uint64_t>& shape) {
  std::uint64_t bytes = safetensors_element_bytes(dtype);
  if (bytes == 0)
    return Status::error(Code::unsupported, str(quoted(name), ": unknown dtype ", quoted(dtype)));
  if (shape.size() > kSafetensorsMaxRank)
    return Status::error(Code::invalid,
                         str(quoted(name), ": ", shape.size(), " dimensions, at most ", kSafetensorsMaxRank));
  // Every partial result must fit even if a later extent of 0 makes the product 0: no writer produces such a
  // shape on purpose.
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  for (const std::uint64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > kMax)
      return Status::error(Code::invalid,
                           str(quoted(name), ": its shape and ", dtype, " make more than ", kMax, " bytes"));
  }
  return bytes;
}

std::string quoted(std::string_view name) {
  constexpr std::size_t kShown = 80;
  std::string out = "'";
  for (const char c : name.substr(0, kShown))
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return out += name.size() > kShown ? "...'" : "'";
}

Result<SafetensorsHeader> parse_safetensors_header(const std::string& text) {
  if (text.empty() || text.front() != '{')
    return Status::error(Code::corrupt, "its header does not begin with '{'");
  // The JSON parser treats NUL as the end, and would ignore what follows.
  if (const std::size_t nul = text.find('\0'); nul != std::string::npos)
    return Status::error(Code::corrupt, str("a NUL at byte ", nul, " of its header"));
  try {
    HeaderHandler handler;
    if (!nlohmann::json::sax_parse(text, &handler)) return handler.failed;
    return std::move(handler.header);
  } catch (const std::bad_alloc&) {
    return Status::error(Code::out_of_memory, str("no memory to read a header of ", text.size(), " bytes"));
  } catch (const std::exception& e) {
    return Status::error(Code::internal, str("reading its header: ", e.what()));
  }
}

std::string safetensors_header_text(const std::vector<TensorSpec>& specs,
                                    const std::vector<std::uint64_t>& ends,
                                    const std::map<std::string, std::string>& metadata) {
  std::string out = "{";
  if (!metadata.empty()) {
    JsonTree<nlohmann::json> tree;
    tree.root = metadata;
    out += str("\"__metadata__\":", tree.root.dump());
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (out.size() > 1) out += ',';
    out += nlohmann::json(specs[i].name).dump();
    out += str(":{\"dtype\":\"", specs[i].dtype, "\",\"shape\":[",
               fmt::format("{}", fmt::join(specs[i].shape, ",")), "],\"data_offsets\":[",
               i == 0 ? 0 : ends[i - 1], ",", ends[i], "]}");
  }
  out += '}';
  out.append((8 - out.size() % 8) % 8, ' ');  // pads the header so that the data begins at a multiple of 8
  return out;
}

}  // namespace detail
}  // namespace strata
