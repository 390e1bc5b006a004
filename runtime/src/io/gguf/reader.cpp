#include <strata/runtime/io/gguf/reader.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <utility>

#include <strata/runtime/str.h>

#include <strata/runtime/io/gguf/encoding.h>
#include "io/gguf/header_reader.h"

namespace strata {
namespace {

using detail::GgufHeaderReader;

constexpr std::uint64_t kKeyLimit = 65535, kNameLimit = 256, kTextLimit = std::uint64_t{64} << 20;
// All lists together, and all texts. A vocabulary of 262144 tokens with its merges is below a third of that.
constexpr std::uint64_t kListLimit = std::uint64_t{1} << 22, kTextsLimit = std::uint64_t{256} << 20;
constexpr std::uint64_t kTensorLimit = std::uint64_t{1} << 20;
constexpr std::uint64_t kShortList = 65536;  // nothing but a vocabulary has longer ones that are read
constexpr std::string_view kLongLists[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.scores",
                                           "tokenizer.ggml.token_type", "tokenizer.ggml.merges"};
constexpr std::uint64_t kReadBytes = 1 << 20;

// Value types (gguf_metadata_value_type).
enum class Kind : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, list, u64, i64, f64 };
constexpr std::uint64_t bytes_of(Kind kind) {
  constexpr std::uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  return kBytes[static_cast<std::uint32_t>(kind)];
}

class HeaderParser {
 public:
  explicit HeaderParser(GgufHeaderReader& in) : in_(in) {}

  Status parse() {
    STRATA_TRY(parse_magic());
    STRATA_TRY_ASSIGN(const auto n_tensors, in_.number<std::uint64_t>("the number of tensors"));
    STRATA_TRY_ASSIGN(const auto n_keys, in_.number<std::uint64_t>("the number of keys"));
    STRATA_TRY(in_.check_count(n_keys, 8 + 4 + 1, "keys"));
    for (std::uint64_t i = 0; i < n_keys; ++i) STRATA_TRY(parse_pair());
    STRATA_TRY(in_.check_count(n_tensors, 8 + 4 + 8 + 4 + 8, "tensors"));
    if (n_tensors > kTensorLimit)
      return in_.corrupt_at(8, str(n_tensors, " tensors, at most ", kTensorLimit, " are read"));
    for (std::uint64_t i = 0; i < n_tensors; ++i) STRATA_TRY(parse_tensor());
    return place_tensors();
  }

  std::map<std::string, GgufValue, std::less<>> metadata;
  std::map<std::string, GgufEntry, std::less<>> tensors;

 private:
  Status parse_magic() {
    STRATA_TRY_ASSIGN(const auto magic, in_.number<std::uint32_t>("a GGUF file"));
    if (magic != 0x46554747) return in_.corrupt_at(0, "it does not begin with GGUF");
    STRATA_TRY_ASSIGN(const auto version, in_.number<std::uint32_t>("the version"));
    if (version == 2 || version == 3) return {};
    const bool swapped = version != 0 && (version & 0xffff) == 0;
    return Status::error(Code::unsupported,
                         swapped ? str("byte 4: the file is big-endian; only little-endian files are read")
                                 : str("byte 4: the version is ", version, "; 2 and 3 are read"));
  }

  template <class T>
  Result<GgufValue> integer() {
    const std::uint64_t begin = in_.at();
    STRATA_TRY_ASSIGN(const T value, in_.number<T>("a value"));
    if constexpr (sizeof(T) == 8 && std::is_unsigned_v<T>)
      if (value > static_cast<T>(std::numeric_limits<std::int64_t>::max()))
        return in_.corrupt_at(begin, str("the value ", value, " is above 2^63 - 1"));
    return GgufValue(static_cast<std::int64_t>(value));
  }

  Result<GgufValue> value(Kind kind) {
    const std::uint64_t begin = in_.at();
    switch (kind) {
      case Kind::u8:
        return integer<std::uint8_t>();
      case Kind::i8:
        return integer<std::int8_t>();
      case Kind::u16:
        return integer<std::uint16_t>();
      case Kind::i16:
        return integer<std::int16_t>();
      case Kind::u32:
        return integer<std::uint32_t>();
      case Kind::i32:
        return integer<std::int32_t>();
      case Kind::u64:
        return integer<std::uint64_t>();
      case Kind::i64:
        return integer<std::int64_t>();
      case Kind::f32: {
        STRATA_TRY_ASSIGN(const float number, in_.number<float>("a value"));
        return GgufValue(static_cast<double>(number));
      }
      case Kind::f64: {
        STRATA_TRY_ASSIGN(const double number, in_.number<double>("a value"));
        return GgufValue(number);
      }
      case Kind::boolean: {
        STRATA_TRY_ASSIGN(const auto byte, in_.number<std::uint8_t>("a value"));
        if (byte > 1) return in_.corrupt_at(begin, str("a boolean is ", unsigned{byte}));
        return GgufValue(byte == 1);
      }
      case Kind::text: {
        STRATA_TRY_ASSIGN(std::string text, in_.text("a text", kTextLimit));
        text_bytes_ += text.size();
        if (text_bytes_ > kTextsLimit)
          return in_.corrupt_at(begin, str("with a text of ", text.size(), " bytes all texts have ",
                                           text_bytes_, ", at most ", kTextsLimit, " are read"));
        return GgufValue(std::move(text));
      }
      case Kind::list:
        return list();
    }
    return in_.corrupt_at(begin - 4, str("value type ", static_cast<std::uint32_t>(kind), " is unknown"));
  }

  template <class T>
  Result<GgufValue> list_of(Kind kind, std::uint64_t n) {
    std::vector<T> values;
    values.reserve(static_cast<std::size_t>(n));
    for (std::uint64_t i = 0; i < n; ++i) {
      STRATA_TRY_ASSIGN(GgufValue one, value(kind));
      values.push_back(std::get<T>(std::move(one)));
    }
    return GgufValue(std::move(values));
  }
  /// Passes over a list without keeping it.
  Result<GgufValue> skipped(Kind kind, std::uint64_t n) {
    if (kind != Kind::text) {
      STRATA_TRY(in_.skip(n * bytes_of(kind), "a list"));
      return GgufValue(std::monostate());
    }
    for (std::uint64_t i = 0; i < n; ++i) {
      STRATA_TRY_ASSIGN(const auto bytes, in_.number<std::uint64_t>("a text"));
      STRATA_TRY(in_.skip(bytes, "a text"));
    }
    return GgufValue(std::monostate());
  }
  Result<GgufValue> list() {
    STRATA_TRY_ASSIGN(const Kind kind, this->kind());
    const std::uint64_t begin = in_.at();
    STRATA_TRY_ASSIGN(const auto n, in_.number<std::uint64_t>("a list"));
    if (kind == Kind::list) return in_.corrupt_at(begin - 4, "a list has lists");
    STRATA_TRY(in_.check_count(n, bytes_of(kind), "elements of a list"));
    const bool is_read = n <= kShortList || std::find(std::begin(kLongLists), std::end(kLongLists), key_) !=
                                                std::end(kLongLists);
    if (!is_read) return skipped(kind, n);
    list_elems_ += n;
    if (list_elems_ > kListLimit)
      return in_.corrupt_at(begin, str("with a list of ", n, " elements all lists have ", list_elems_,
                                       ", at most ", kListLimit, " are read"));
    if (kind == Kind::text) return list_of<std::string>(kind, n);
    if (kind == Kind::boolean) return list_of<bool>(kind, n);
    return kind == Kind::f32 || kind == Kind::f64 ? list_of<double>(kind, n) : list_of<std::int64_t>(kind, n);
  }
  Result<Kind> kind() {
    const std::uint64_t begin = in_.at();
    STRATA_TRY_ASSIGN(const auto number, in_.number<std::uint32_t>("the type of a value"));
    if (number > static_cast<std::uint32_t>(Kind::f64))
      return in_.corrupt_at(begin, str("value type ", number, " is unknown"));
    return static_cast<Kind>(number);
  }

  Status parse_pair() {
    const std::uint64_t begin = in_.at();
    STRATA_TRY_ASSIGN(key_, in_.text("a key", kKeyLimit));
    STRATA_TRY_ASSIGN(const Kind kind, this->kind());
    auto read = value(kind);
    if (!read.has_value()) return read.status().annotate(key_);
    if (!metadata.emplace(key_, *std::move(read)).second)
      return in_.corrupt_at(begin, str("the key ", key_, " is there twice"));
    return {};
  }

  Status parse_tensor() {
    const std::uint64_t begin = in_.at();
    GgufEntry entry;
    STRATA_TRY_ASSIGN(entry.tensor.name, in_.text("the name of a tensor", kNameLimit));
    const std::string name = entry.tensor.name;
    STRATA_TRY_ASSIGN(const auto n_dims, in_.number<std::uint32_t>(name));
    if (n_dims < 1 || n_dims > 4)
      return in_.corrupt_at(in_.at() - 4, str(name, " has ", n_dims, " dimensions; there are 1 to 4"));
    std::uint64_t n_elems = 1;
    for (std::uint32_t i = 0; i < n_dims; ++i) {
      const std::uint64_t at = in_.at();
      STRATA_TRY_ASSIGN(const auto extent, in_.number<std::uint64_t>(name));
      // Elements have more than half a byte (mxfp4: 17 bytes for 32), so that no tensor has two for each
      // byte.
      if (extent == 0 || extent > 2 * in_.size() / n_elems)
        return in_.corrupt_at(at, str(name, " has a dimension of ", extent, ", more than the file holds"));
      n_elems *= extent;
      entry.tensor.shape.insert(entry.tensor.shape.begin(), extent);
    }
    STRATA_TRY_ASSIGN(const auto format, in_.number<std::uint32_t>(name));
    entry.tensor.format = static_cast<GgufFormat>(format);
    STRATA_TRY(check_format(entry.tensor));
    STRATA_TRY_ASSIGN(entry.offset, in_.number<std::uint64_t>(name));
    if (!tensors.emplace(name, std::move(entry)).second)
      return in_.corrupt_at(begin, str("the tensor ", name, " is there twice"));
    return {};
  }

  Status check_format(const GgufTensor& tensor) const {
    const auto number = static_cast<std::uint32_t>(tensor.format);
    if (to_string(tensor.format) == "?")
      return Status::error(
          Code::unsupported,
          str("byte ", in_.at() - 4, ": ", tensor.name, " has ggml's format ", number,
              "; f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_K, q5_K, q6_K and MXFP4 are read: "
              "convert the file with llama-quantize --allow-requantize"));
    const GgufBlock block = gguf_block(tensor.format);
    if (tensor.columns() % block.elems == 0) return {};
    return in_.corrupt_at(in_.at() - 4, str(tensor.name, " has rows of ", tensor.columns(), " values, but ",
                                            to_string(tensor.format), " has blocks of ", block.elems));
  }

  // Offsets count from the end of the header, which is padded.
  Status place_tensors() {
    std::uint64_t alignment = kGgufAlignment;
    if (const auto at = metadata.find("general.alignment"); at != metadata.end()) {
      const auto* const given = std::get_if<std::int64_t>(&at->second);
      if (given == nullptr || *given < 1 || *given > (1 << 20) ||
          !std::has_single_bit(static_cast<std::uint64_t>(*given)))
        return in_.corrupt_at(0, "general.alignment is not a power of two up to 1048576");
      alignment = static_cast<std::uint64_t>(*given);
    }
    const std::uint64_t data = (in_.at() + alignment - 1) / alignment * alignment;
    std::vector<const GgufEntry*> order;
    for (auto& [name, entry] : tensors) {
      const std::uint64_t bytes = entry.tensor.bytes();
      if (entry.offset % alignment != 0)
        return in_.corrupt_at(data,
                              str(name, " is at the offset ", entry.offset, ", no multiple of ", alignment));
      if (data > in_.size() || entry.offset > in_.size() - data || bytes > in_.size() - data - entry.offset)
        return in_.corrupt_at(std::min(data, in_.size()),
                              str(name, " has ", bytes, " bytes at the offset ", entry.offset,
                                  ", but the file ends after ", in_.size(), " bytes: download it again"));
      entry.offset += data;
      order.push_back(&entry);
    }
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
    for (std::size_t i = 1; i < order.size(); ++i)
      if (const GgufEntry& before = *order[i - 1]; before.offset + before.tensor.bytes() > order[i]->offset)
        return in_.corrupt_at(order[i]->offset,
                              str(before.tensor.name, " and ", order[i]->tensor.name, " overlap"));
    return {};
  }

  GgufHeaderReader& in_;
  std::string key_;  // the key of the value that is read
  std::uint64_t list_elems_ = 0, text_bytes_ = 0;
};

}  // namespace

Result<std::unique_ptr<GgufReader>> GgufReader::open(Io& io, const std::string& path) {
  std::unique_ptr<GgufReader> reader(new GgufReader);
  reader->path_ = path;
  STRATA_TRY_ASSIGN(reader->file_, io.open(path, OpenMode::read));
  STRATA_TRY_ASSIGN(const std::uint64_t size, reader->file_->size());
  GgufHeaderReader in(*reader->file_, size);
  HeaderParser parser(in);
  STRATA_TRY(parser.parse().annotate(path));
  reader->metadata_ = std::move(parser.metadata);
  reader->tensors_ = std::move(parser.tensors);
  return reader;
}

Status GgufReader::read(const GgufEntry& entry, std::uint64_t begin, std::span<float> into) const {
  const GgufFormat format = entry.tensor.format;
  const GgufBlock block = gguf_block(format);
  const std::uint64_t end = begin + into.size(), at_once = kReadBytes / block.bytes;
  std::vector<std::byte> bytes;
  std::vector<float> values;
  for (std::uint64_t first = begin / block.elems; first * block.elems < end; first += at_once) {
    const std::uint64_t last = std::min(first + at_once, (end + block.elems - 1) / block.elems);
    bytes.resize((last - first) * block.bytes);
    values.resize((last - first) * block.elems);
    STRATA_TRY(read_exact(*file_, entry.offset + first * block.bytes, bytes).annotate(path_));
    STRATA_TRY(decode_gguf(bytes, format, values));
    const std::uint64_t from = std::max(begin, first * block.elems), to = std::min(end, last * block.elems);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(from - first * block.elems), to - from,
                into.begin() + static_cast<std::ptrdiff_t>(from - begin));
  }
  return {};
}

Result<bool> GgufReader::are_equal(const GgufEntry& one, const GgufEntry& other) const {
  if (one.tensor.format != other.tensor.format || one.tensor.shape != other.tensor.shape) return false;
  std::vector<std::byte> a, b;
  for (std::uint64_t at = 0, n = one.tensor.bytes(); at < n; at += kReadBytes) {
    a.resize(std::min(kReadBytes, n - at));
    b.resize(a.size());
    STRATA_TRY(read_exact(*file_, one.offset + at, a).annotate(path_));
    STRATA_TRY(read_exact(*file_, other.offset + at, b).annotate(path_));
    if (a != b) return false;
  }
  return true;
}

}  // namespace strata
