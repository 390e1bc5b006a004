#include <limits>

#include <nlohmann/json.hpp>

#include <strata/engine/checkpoint.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

using Json = nlohmann::json;
constexpr std::string_view kFormat = "strata-checkpoint";
constexpr std::size_t kMaxFiles = 4096;

bool plain_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && name.front() != '.';
}

/// A count. get<>() alone would take 1e300 for one, which is undefined, and -1 for a large one.
Result<std::int64_t> natural(const Json& json, const char* key) {
  const Json& value = json.at(key);
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMost)
    return Status::error(Code::corrupt,
                         str("its ", key, " is ", value.dump().substr(0, 80), ", no count up to ", kMost));
  return value.get<std::int64_t>();
}

Result<Manifest> read(const Json& json) {
  STRATA_TRY_ASSIGN(const std::int64_t version, natural(json, "version"));
  if (json.at("format").get<std::string>() != kFormat)
    return Status::error(Code::corrupt, "it is not a strata checkpoint");
  if (version > Manifest::kVersion)
    return Status::error(Code::unsupported, str("its version is ", version, " and this program reads up to ",
                                                Manifest::kVersion));
  Manifest manifest;
  STRATA_TRY_ASSIGN(manifest.step, natural(json, "step"));
  if (json.contains("loss_scale")) {
    const Json& scale = json.at("loss_scale");
    STRATA_TRY_ASSIGN(const std::int64_t value, natural(scale, "value"));
    STRATA_TRY_ASSIGN(manifest.loss_scale.good_steps, natural(scale, "good_steps"));
    manifest.loss_scale.value = static_cast<double>(value);
    if (!LossScale::is_valid(manifest.loss_scale.value))
      return Status::error(Code::corrupt, str("its loss scale is ", value, ", no power of two from 1 to ",
                                              static_cast<std::int64_t>(LossScale::kMost)));
  }
  if (json.at("files").size() > kMaxFiles)
    return Status::error(Code::corrupt,
                         str("it lists ", json.at("files").size(), " files, more than ", kMaxFiles));
  for (const Json& file : json.at("files")) {
    STRATA_TRY_ASSIGN(const std::int64_t bytes, natural(file, "bytes"));
    manifest.files.push_back({file.at("name").get<std::string>(), static_cast<std::uint64_t>(bytes),
                              file.at("digest").get<std::string>()});
    if (!plain_name(manifest.files.back().name))
      return Status::error(Code::corrupt,
                           str("the file name '", manifest.files.back().name, "' is not plain"));
  }
  for (const auto& [key, value] : json.at("run").items()) manifest.run[key] = value.get<std::string>();
  return manifest;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  Json json = {{"format", kFormat},
               {"version", Manifest::kVersion},
               {"step", manifest.step},
               {"files", Json::array()},
               {"run", Json::object()}};
  if (manifest.loss_scale != LossScale{})
    json["loss_scale"] = {{"value", static_cast<std::int64_t>(manifest.loss_scale.value)},
                          {"good_steps", manifest.loss_scale.good_steps}};
  for (const CheckpointFile& file : manifest.files)
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"digest", file.digest}});
  for (const auto& [key, value] : manifest.run) json["run"][key] = value;
  return json.dump(2) + "\n";
}

Result<Manifest> manifest_from_json(const std::string& text) {
  try {
    return read(Json::parse(text));
  } catch (const std::exception& e) {
    return Status::error(Code::corrupt, str("the manifest is damaged: ", e.what()));
  }
}

}  // namespace strata
