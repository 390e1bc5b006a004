#include <strata/runtime/io/gguf/layout.h>

#include <cstring>

namespace strata {
namespace {

// Value types of a key-value pair (gguf_metadata_value_type).
constexpr std::uint32_t kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kText = 8, kList = 9;
constexpr std::uint32_t kGgufVersion = 3;

// All supported machines are little-endian, as the file is.
template <class T>
void put_number(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}
void put_text(std::string& out, std::string_view text) {
  put_number(out, static_cast<std::uint64_t>(text.size()));
  out += text;
}

}  // namespace

void GgufMetadata::begin(std::string_view key, std::uint32_t type) {
  put_text(bytes_, key);
  put_number(bytes_, type);
  ++count_;
}
void GgufMetadata::begin_list(std::string_view key, std::uint32_t type, std::size_t n) {
  begin(key, kList);
  put_number(bytes_, type);
  put_number(bytes_, static_cast<std::uint64_t>(n));
}
void GgufMetadata::add_u32(std::string_view key, std::int64_t value) {
  begin(key, kU32);
  put_number(bytes_, static_cast<std::uint32_t>(value));
}
void GgufMetadata::add_f32(std::string_view key, float value) {
  begin(key, kF32);
  put_number(bytes_, value);
}
void GgufMetadata::add_bool(std::string_view key, bool value) {
  begin(key, kBool);
  put_number(bytes_, static_cast<char>(value));
}
void GgufMetadata::add_text(std::string_view key, std::string_view value) {
  begin(key, kText);
  put_text(bytes_, value);
}
void GgufMetadata::add_bools(std::string_view key, const std::vector<bool>& values) {
  begin_list(key, kBool, values.size());
  for (const bool value : values) put_number(bytes_, static_cast<char>(value));
}
void GgufMetadata::add_i32s(std::string_view key, std::span<const std::int32_t> values) {
  begin_list(key, kI32, values.size());
  for (const std::int32_t value : values) put_number(bytes_, value);
}
void GgufMetadata::add_f32s(std::string_view key, std::span<const float> values) {
  begin_list(key, kF32, values.size());
  for (const float value : values) put_number(bytes_, value);
}
void GgufMetadata::add_texts(std::string_view key, std::span<const std::string> values) {
  begin_list(key, kText, values.size());
  for (const std::string& value : values) put_text(bytes_, value);
}

GgufBlock gguf_block(GgufFormat format) noexcept {
  switch (format) {
    case GgufFormat::f32:
      return {1, 4};
    case GgufFormat::f16:
    case GgufFormat::bf16:
      return {1, 2};
    case GgufFormat::mxfp4:
      return {32, 17};
    case GgufFormat::q4_0:
      return {32, 18};
    case GgufFormat::q4_1:
      return {32, 20};
    case GgufFormat::q5_0:
      return {32, 22};
    case GgufFormat::q5_1:
      return {32, 24};
    case GgufFormat::q8_0:
      return {32, 34};
    case GgufFormat::q4_k:
      return {256, 144};
    case GgufFormat::q5_k:
      return {256, 176};
    case GgufFormat::q6_k:
      return {256, 210};
  }
  return {};
}

std::uint64_t GgufTensor::n_elems() const noexcept {
  std::uint64_t n = 1;
  for (const std::uint64_t extent : shape) n *= extent;
  return n;
}

std::string gguf_header(const GgufMetadata& metadata, std::span<const GgufTensor> tensors) {
  std::string out = "GGUF";
  put_number(out, kGgufVersion);
  put_number(out, static_cast<std::uint64_t>(tensors.size()));
  put_number(out, metadata.count());
  out += metadata.bytes();
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    put_text(out, tensor.name);
    put_number(out, static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent)
      put_number(out, *extent);
    put_number(out, static_cast<std::uint32_t>(tensor.format));
    put_number(out, offset);
    offset += tensor.bytes() + gguf_padding(tensor.bytes());
  }
  out.append(gguf_padding(out.size()), '\0');
  return out;
}

}  // namespace strata
