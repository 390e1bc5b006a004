#include <strata/session/manifest.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <span>

#include <nlohmann/json.hpp>

#include <strata/runtime/config/json_problem.h>
#include <strata/runtime/config/json_tree.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/str.h>

#include "checkpoint/checkpoint_names.h"

namespace strata {
namespace {

using Json = nlohmann::json;
constexpr std::string_view kFormat = "strata-checkpoint";
constexpr std::size_t kMaxFiles = 4096;

bool plain_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && name.front() != '.';
}

/// Reads a count. get<>() alone would accept 1e300, which is undefined behaviour, and turn -1 into a large
/// count.
Result<std::int64_t> natural(const Json& json, const char* key) {
  const Json& value = json.at(key);
  constexpr auto kMaxCount = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMaxCount)
    return Status::error(Code::corrupt, str("its ", key, " is ", value.dump().substr(0, 80),
                                            ", which is not a count up to ", kMaxCount));
  return value.get<std::int64_t>();
}

/// Unknown keys are refused, since ignoring them could hide a damaged key.
Status check_keys(const Json& json, std::initializer_list<std::string_view> known, std::string_view where) {
  if (!json.is_object()) return Status::error(Code::corrupt, str(where, " is not an object"));
  for (const auto& [key, value] : json.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      return Status::error(Code::corrupt, str(where, " has the unknown key '", key, "'"));
  return {};
}

Result<int> read_version(const Json& json) {
  if (json.at("format").get<std::string>() != kFormat)
    return Status::error(Code::corrupt, "it is not a strata checkpoint");
  STRATA_TRY_ASSIGN(const std::int64_t version, natural(json, "version"));
  if (version >= Manifest::kOldest && version <= Manifest::kNewest) return static_cast<int>(version);
  return Status::error(Code::unsupported, str("its version is ", version, "; this program reads versions ",
                                              Manifest::kOldest, " to ", Manifest::kNewest));
}

std::string digest_of_json(const Json& json) {
  const std::string text = json.dump(2);
  return to_hex(digest_of(std::as_bytes(std::span(text))));
}

/// Checks the digest of everything except the digest itself, in the form in which to_json() writes it.
Status check_digest(Json& json) {
  const std::string said = json.at("digest").get<std::string>();
  json.erase("digest");
  const std::string found = digest_of_json(json);
  if (found == said) return {};
  return Status::error(Code::corrupt,
                       str("the manifest is damaged: its digest is ", found, ", it says ", said));
}

Result<LossScale> read_loss_scale(const Json& json) {
  STRATA_TRY(check_keys(json, {"value", "good_steps"}, "its loss_scale"));
  LossScale scale;
  STRATA_TRY_ASSIGN(const std::int64_t value, natural(json, "value"));
  STRATA_TRY_ASSIGN(scale.good_steps, natural(json, "good_steps"));
  scale.value = static_cast<double>(value);
  if (LossScale::is_valid(scale.value)) return scale;
  return Status::error(Code::corrupt,
                       str("its loss scale is ", value, ", which is not a power of two from 1 to ",
                           static_cast<std::int64_t>(LossScale::kMax)));
}

Result<CheckpointFile> read_file(const Json& json) {
  STRATA_TRY(check_keys(json, {"name", "bytes", "digest", "tensors"}, "an entry of its files"));
  CheckpointFile file;
  file.name = json.at("name").get<std::string>();
  if (!plain_name(file.name))
    return Status::error(Code::corrupt, str("the file name '", file.name, "' is not a plain file name"));
  STRATA_TRY_ASSIGN(const std::int64_t bytes, natural(json, "bytes"));
  file.bytes = static_cast<std::uint64_t>(bytes);
  file.digest = json.at("digest").get<std::string>();
  for (const auto& [name, digest] : json.at("tensors").items())
    file.tensors.emplace(name, digest.get<std::string>());
  return file;
}

Result<std::vector<CheckpointFile>> read_files(const Json& json) {
  if (json.size() > kMaxFiles)
    return Status::error(Code::corrupt, str("it lists ", json.size(), " files, more than ", kMaxFiles));
  std::vector<CheckpointFile> files;
  for (const Json& entry : json) {
    STRATA_TRY_ASSIGN(CheckpointFile file, read_file(entry));
    if (std::any_of(files.begin(), files.end(), [&](const auto& other) { return other.name == file.name; }))
      return Status::error(Code::corrupt, str("it lists the file ", file.name, " twice"));
    files.push_back(std::move(file));
  }
  return files;
}

// Version 5 differs from 4 in this object alone, and in that it may leave out nothing.
Status read_trainees(const Json& json, Manifest& manifest) {
  for (const auto& [name, entry] : json.at("trainees").items()) {
    STRATA_TRY(check_keys(entry, {"step", "loss_scale"}, str("its trainee ", name)));
    Manifest::Trainee& trainee = manifest.trainees[name];
    STRATA_TRY_ASSIGN(trainee.step, natural(entry, "step"));
    STRATA_TRY_ASSIGN(trainee.loss_scale, read_loss_scale(entry.at("loss_scale")));
  }
  if (!manifest.trainees.empty()) return {};
  return Status::error(Code::corrupt, str("its version is ", manifest.version, ", but it has no trainees"));
}

// Version 4 differs from 3 in this list alone.
Status read_frozen(const Json& json, Manifest& manifest) {
  for (const auto& [name, digest] : json.at("frozen").items()) {
    for (const CheckpointFile& file : manifest.files)
      if (file.tensors.contains(name))
        return Status::error(Code::corrupt, str("it lists ", name, " as left out and in ", file.name));
    manifest.frozen.emplace(name, digest.get<std::string>());
  }
  if (!manifest.frozen.empty()) return {};
  return Status::error(Code::corrupt,
                       str("its version is ", manifest.version, ", but it leaves out nothing"));
}

Result<Manifest> read(Json& json) {
  Manifest manifest;
  STRATA_TRY_ASSIGN(manifest.version, read_version(json));
  STRATA_TRY(check_digest(json));
  const bool has_trainees = manifest.version >= Manifest::kNewest;
  const bool leaves_out = manifest.version == Manifest::kFrozen || (has_trainees && json.contains("frozen"));
  STRATA_TRY(check_keys(json,
                        {"format", "version", "step", "loss_scale", "param_steps", "files",
                         leaves_out ? "frozen" : "files", has_trainees ? "trainees" : "files", "run"},
                        "the manifest"));
  STRATA_TRY_ASSIGN(manifest.step, natural(json, "step"));
  if (json.contains("loss_scale")) {
    STRATA_TRY_ASSIGN(manifest.loss_scale, read_loss_scale(json.at("loss_scale")));
  }
  if (json.contains("param_steps"))
    for (const auto& [name, steps] : json.at("param_steps").items()) {
      STRATA_TRY_ASSIGN(manifest.param_steps[name], natural(json.at("param_steps"), name.c_str()));
    }
  STRATA_TRY_ASSIGN(manifest.files, read_files(json.at("files")));
  if (leaves_out) STRATA_TRY(read_frozen(json, manifest));
  if (has_trainees) STRATA_TRY(read_trainees(json, manifest));
  for (const auto& [key, value] : json.at("run").items()) manifest.run[key] = value.get<std::string>();
  return manifest;
}

}  // namespace

namespace {

// An object of what a map has.
template <class Map>
void set(Json& json, const char* key, const Map& map) {
  Json& object = json[key] = Json::object();
  for (const auto& [name, value] : map) object[name] = value;
}

void set_scale(Json& json, const LossScale& loss_scale) {
  Json& scale = json["loss_scale"] = Json::object();
  scale["value"] = static_cast<std::int64_t>(loss_scale.value);
  scale["good_steps"] = loss_scale.good_steps;
}

}  // namespace

// Built in place: nlohmann's destructors need memory for what an initializer list holds. And of explicit
// objects: a null that becomes one has no valid state if there is no memory for it.
std::string to_json(const Manifest& manifest) {
  JsonTree<Json> tree(Json::object());
  Json& json = tree.root;
  json["format"] = kFormat;
  json["version"] = manifest.version;
  json["step"] = manifest.step;
  if (manifest.loss_scale != LossScale{}) set_scale(json, manifest.loss_scale);
  if (!manifest.param_steps.empty()) set(json, "param_steps", manifest.param_steps);
  Json& files = json["files"] = Json::array();
  for (const CheckpointFile& file : manifest.files) {
    Json& entry = files.emplace_back(Json::object());
    entry["name"] = file.name;
    entry["bytes"] = file.bytes;
    entry["digest"] = file.digest;
    set(entry, "tensors", file.tensors);
  }
  if (!manifest.frozen.empty()) set(json, "frozen", manifest.frozen);
  if (!manifest.trainees.empty()) {
    Json& trainees = json["trainees"] = Json::object();
    for (const auto& [name, trainee] : manifest.trainees) {
      Json& entry = trainees[name] = Json::object();
      entry["step"] = trainee.step;
      set_scale(entry, trainee.loss_scale);
    }
  }
  set(json, "run", manifest.run);
  json["digest"] = digest_of_json(json);
  return json.dump(2) + "\n";
}

Result<Manifest> manifest_from_json(const std::string& text) {
  try {
    JsonTree<Json> tree;
    if (const std::string problem = tree.read(text); !problem.empty())
      return Status::error(Code::corrupt, str("the manifest is damaged: ", problem));
    return read(tree.root);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    return Status::error(Code::corrupt, str("the manifest is damaged: ", json_problem(e.what())));
  }
}

namespace {

// Room for the digests of a million tensors.
constexpr std::uint64_t kManifestLimit = std::uint64_t{256} << 20;

std::string_view last_of(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

}  // namespace

Result<Manifest> read_manifest(Io& io, const std::string& folder) {
  const std::string path = folder + "/" + std::string(detail::kManifestName);
  auto text = read_text(io, path, kManifestLimit);
  if (!text.has_value()) return text.status();
  auto manifest = manifest_from_json(*text);
  if (!manifest.has_value()) return manifest.status().annotate(path);
  const auto step = detail::step_of(last_of(folder));
  if (step && *step != manifest->step)
    return Status::error(Code::corrupt, str(path, ": the manifest is for step ", manifest->step,
                                            ", but its folder is named for step ", *step));
  return manifest;
}

}  // namespace strata
