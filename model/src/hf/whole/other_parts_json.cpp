#include <strata/model/hf/other_parts.h>

#include <nlohmann/json.hpp>

#include <strata/runtime/config/strict_json.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

using nlohmann::json;

/// Reads the keys of a record; the first that is missing or of another type is kept.
class RecordReader {
 public:
  std::string text(const json& of, const char* key) {
    const auto at = of.is_object() ? of.find(key) : of.end();
    if (!of.is_object() || at == of.end() || !at->is_string()) return fail(key), std::string();
    return at->get<std::string>();
  }
  std::uint64_t number(const json& of, const char* key) {
    const auto at = of.is_object() ? of.find(key) : of.end();
    if (!of.is_object() || at == of.end() || !at->is_number_unsigned()) return fail(key), 0;
    return at->get<std::uint64_t>();
  }
  const json& list(const json& of, const char* key) {
    static const json kNone = json::array();
    const auto at = of.is_object() ? of.find(key) : of.end();
    if (of.is_object() && at != of.end() && at->is_array()) return *at;
    fail(key);
    return kNone;
  }
  std::vector<std::uint64_t> shape(const json& of) {
    std::vector<std::uint64_t> extents;
    for (const json& extent : list(of, "shape")) {
      if (!extent.is_number_unsigned()) return fail("shape"), extents;
      extents.push_back(extent.get<std::uint64_t>());
    }
    return extents;
  }
  const Status& status() const noexcept { return status_; }

 private:
  void fail(const char* key) {
    if (status_.is_ok())
      status_ = Status::error(Code::corrupt, str("the record of other parts has no ", key, " of its kind"));
  }
  Status status_;
};

}  // namespace

std::string other_parts_json(const OtherParts& parts) {
  json root = {{"folder", parts.folder}, {"tensors", json::array()}, {"files", json::array()}};
  for (const OtherTensor& tensor : parts.tensors)
    root["tensors"].push_back({{"name", tensor.name},
                               {"dtype", tensor.dtype},
                               {"shape", tensor.shape},
                               {"bytes", tensor.bytes},
                               {"digest", tensor.digest}});
  for (const OtherFile& file : parts.files)
    root["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"digest", file.digest}});
  return root.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<OtherParts> other_parts_from_json(const std::string& text) {
  STRATA_TRY_ASSIGN(const json root, detail::parse_strict_json(text));
  RecordReader reader;
  OtherParts parts{reader.text(root, "folder")};
  for (const json& tensor : reader.list(root, "tensors"))
    parts.tensors.push_back({reader.text(tensor, "name"), reader.text(tensor, "dtype"), reader.shape(tensor),
                             reader.number(tensor, "bytes"), reader.text(tensor, "digest")});
  for (const json& file : reader.list(root, "files")) {
    parts.files.push_back(
        {reader.text(file, "name"), reader.number(file, "bytes"), reader.text(file, "digest")});
    if (const std::string& name = parts.files.back().name; name.find('/') != std::string::npos)
      return Status::error(Code::invalid, str("the record of other parts names '", name,
                                              "', which is not a file of a folder"));
  }
  STRATA_TRY(reader.status());
  return parts;
}

}  // namespace strata
