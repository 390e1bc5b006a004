// Reads the bytes of a GGUF file (docs/gguf.md of ggml-org/ggml) without the code that writes them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <strata/runtime/float16.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>

namespace strata::test {

struct GgufFileTensor {
  std::vector<std::uint64_t> dims;  // as in the file: the columns first
  std::uint32_t type = 0;
  std::uint64_t offset = 0;  // in the file
};

class GgufFile {
 public:
  explicit GgufFile(std::string bytes) : bytes_(std::move(bytes)) {
    if (bytes_.substr(0, 4) != "GGUF") throw std::runtime_error("no GGUF file");
    at_ = 4;
    version = take<std::uint32_t>();
    const auto n_tensors = take<std::uint64_t>(), n_keys = take<std::uint64_t>();
    for (std::uint64_t i = 0; i < n_keys; ++i) {
      const std::string key = text();
      if (metadata.contains(key)) throw std::runtime_error(key + " twice");
      metadata[key] = value(take<std::uint32_t>());
    }
    for (std::uint64_t i = 0; i < n_tensors; ++i) {
      const std::string name = text();
      names.push_back(name);
      GgufFileTensor& tensor = tensors[name];
      tensor.dims.resize(take<std::uint32_t>());
      for (std::uint64_t& dim : tensor.dims) dim = take<std::uint64_t>();
      tensor.type = take<std::uint32_t>();
      tensor.offset = take<std::uint64_t>();
    }
    data_begin = (at_ + 31) / 32 * 32;
    for (auto& [name, tensor] : tensors) tensor.offset += data_begin;
  }
  static GgufFile open(const std::string& path) {
    return GgufFile(must(read_text(posix_io(), path, std::uint64_t{1} << 30)));
  }

  /// The values of a tensor in f32.
  std::vector<float> values(const std::string& name) const {
    const GgufFileTensor& tensor = tensors.at(name);
    std::uint64_t n = 1;
    for (const std::uint64_t dim : tensor.dims) n *= dim;
    std::vector<float> out;
    for (std::uint64_t i = 0; i < n; ++i) out.push_back(element(tensor, i));
    return out;
  }
  std::uint64_t file_bytes() const { return bytes_.size(); }

  std::uint32_t version = 0;
  std::uint64_t data_begin = 0;
  nlohmann::json metadata = nlohmann::json::object();
  std::vector<std::string> names;  // in the order of the file
  std::map<std::string, GgufFileTensor> tensors;

 private:
  template <class T>
  T peek(std::uint64_t at) const {
    T out{};
    if (at + sizeof out > bytes_.size()) throw std::runtime_error(str("the file ends before ", at));
    std::memcpy(&out, bytes_.data() + at, sizeof out);
    return out;
  }
  template <class T>
  T take() {
    const T out = peek<T>(at_);
    at_ += sizeof out;
    return out;
  }
  std::string text() {
    const auto n = take<std::uint64_t>();
    if (n > bytes_.size() - at_) throw std::runtime_error(str("a text of ", n, " bytes"));
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  nlohmann::json value(std::uint32_t type) {
    switch (type) {
      case 4:
        return take<std::uint32_t>();
      case 5:
        return take<std::int32_t>();
      case 6:
        return take<float>();
      case 7:
        return take<std::uint8_t>() != 0;
      case 8:
        return text();
      case 9: {
        const auto of = take<std::uint32_t>();
        const auto n = take<std::uint64_t>();
        nlohmann::json list = nlohmann::json::array();
        for (std::uint64_t i = 0; i < n; ++i) list.push_back(value(of));
        return list;
      }
      default:
        throw std::runtime_error(str("value type ", type));
    }
  }
  float element(const GgufFileTensor& tensor, std::uint64_t i) const {
    switch (tensor.type) {
      case 0:
        return peek<float>(tensor.offset + 4 * i);
      case 1:
        return f16_to_f32(peek<std::uint16_t>(tensor.offset + 2 * i));
      case 30:
        return bf16_to_f32(peek<std::uint16_t>(tensor.offset + 2 * i));
      case 39: {  // E2M1: a sign, 2 bits of an exponent with bias 1, and one of the fraction
        const std::uint64_t block = tensor.offset + i / 32 * 17;
        const int pair = peek<std::uint8_t>(block + 1 + i % 16), code = i % 32 < 16 ? pair & 15 : pair >> 4,
                  exponent = code >> 1 & 3;
        const double fraction = (code & 1) * 0.5 + (exponent > 0 ? 1 : 0);
        const double value =
            std::ldexp(fraction, std::max(exponent, 1) - 1 + peek<std::uint8_t>(block) - 127);
        return static_cast<float>((code & 8) != 0 ? -value : value);
      }
      case 8: {
        const std::uint64_t block = tensor.offset + i / 32 * 34;
        return f16_to_f32(peek<std::uint16_t>(block)) *
               static_cast<float>(peek<std::int8_t>(block + 2 + i % 32));
      }
      default:
        throw std::runtime_error(str("tensor type ", tensor.type));
    }
  }

  std::string bytes_;
  std::uint64_t at_ = 0;
};

}  // namespace strata::test
