#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <strata/engine/batch_source.h>
#include <strata/runtime/io/safetensors.h>
#include <strata/runtime/str.h>

namespace strata {

/// The micro-batches of a file, cyclically.
class FileBatches final : public BatchSource {
 public:
  explicit FileBatches(const std::string& path) {
    const auto file = must(SafetensorsFile::open(posix_io(), path));
    for (const char* name : {"tokens", "targets", "doc_start"}) {
      const SafetensorsEntry* entry = file->find(name);
      if (entry == nullptr && std::strcmp(name, "doc_start") == 0) continue;
      if (entry == nullptr || entry->dtype != "I32" || entry->shape.size() != 3)
        throw std::runtime_error(str(path, ": ", name, " is not I32 [n, batch, seq]"));
      shape = entry->shape;
      std::vector<std::int32_t>& values = values_[name];
      values.resize(entry->bytes / 4);
      must(file->read(name, std::as_writable_bytes(std::span(values))));
    }
  }
  bool packed() const { return values_.count("doc_start") != 0; }
  std::vector<std::int32_t> of(const char* name, std::int64_t index) const {
    const std::size_t n = shape[1] * shape[2];
    const auto begin = values_.at(name).begin() +
                       static_cast<std::ptrdiff_t>(static_cast<std::size_t>(index) % shape[0] * n);
    return {begin, begin + static_cast<std::ptrdiff_t>(n)};
  }
  Status fill(std::int64_t index, const BatchView& batch) override {
    const auto put = [&](const char* name, std::span<std::int32_t> into) {
      if (into.empty()) return;
      const auto values = of(name, index);
      std::copy(values.begin(), values.end(), into.begin());
    };
    for (const char* name : {"tokens", "targets", "doc_start"}) put(name, batch[name]);
    return {};
  }
  std::int64_t n_counted(std::int64_t index, std::int64_t n) override {
    std::int64_t counted = 0;
    for (std::int64_t k = index; k < index + n; ++k)
      for (const std::int32_t target : of("targets", k)) counted += target >= 0;
    return counted;
  }
  std::vector<std::uint64_t> shape;

 private:
  std::map<std::string, std::vector<std::int32_t>> values_;
};

}  // namespace strata
