#include <strata/text/model_files.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#include <strata/runtime/io/gguf/reader.h>
#include <strata/runtime/str.h>
#include <strata/text/gguf_tokenizer.h>

namespace strata {
namespace {

namespace fs = std::filesystem;

bool is_within(const fs::path& file, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
}

using Writer = Result<std::string> (*)(const GgufReader& file);

/// The function that writes the file `name` from a GGUF file's metadata; null if the metadata do not say it.
Writer writer_of(std::string_view name) {
  if (name == "tokenizer.json") return tokenizer_from_gguf;
  if (name == "tokenizer_config.json") return tokenizer_config_from_gguf;
  if (name == "generation_config.json") return generation_config_from_gguf;
  return nullptr;
}

}  // namespace

Result<std::string> file_in_hf_folder(const std::string& folder, const std::string& name) {
  const fs::path path = fs::path(folder) / name;
  std::error_code error;
  if (!fs::is_symlink(path, error)) return str(folder, "/", name);
  const fs::path target = fs::canonical(path, error);
  if (error)
    return Status::error(Code::not_found,
                         str(path.string(), ": a symlink to ", fs::read_symlink(path, error).string(),
                             ", which is not there"));
  const fs::path home = fs::canonical(folder, error);
  if (error) return Status::error(Code::io_error, str(folder, ": ", error.message()));
  const bool is_snapshot = home.parent_path().filename() == "snapshots";
  if (is_within(target, home) ||
      (is_snapshot && is_within(target, home.parent_path().parent_path() / "blobs")))
    return target.string();
  return Status::error(
      Code::invalid,
      str(path.string(), ": a symlink to ", target.string(),
          ", which is neither in this folder nor in the blobs of "
          "a hub cache that it is a snapshot of; copy the file here, or name the folder that it is in"));
}

bool is_gguf_file(Io& io, const std::string& path) {
  return path.ends_with(".gguf") && io.exists(path) && !io.exists(path + "/.");
}

std::string gguf_of(Io& io, const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {};
  std::string file = path.substr(0, slash);
  return is_gguf_file(io, file) ? file : std::string();
}

bool tokenizer_file_exists(Io& io, const std::string& path) {
  if (io.exists(path)) return true;
  const std::string file = gguf_of(io, path);
  return !file.empty() && writer_of(std::string_view(path).substr(file.size() + 1)) != nullptr;
}

Result<std::string> read_tokenizer_file(Io& io, const std::string& path, std::uint64_t limit_bytes) {
  const std::string file = gguf_of(io, path);
  if (file.empty()) return read_text(io, path, limit_bytes);
  const std::string_view name = std::string_view(path).substr(file.size() + 1);
  const Writer writer = writer_of(name);
  if (writer == nullptr) return Status::error(Code::not_found, str(file, " has no ", name));
  STRATA_TRY_ASSIGN(const std::unique_ptr<GgufReader> reader, GgufReader::open(io, file));
  auto text = writer(*reader);
  if (!text.has_value()) return text.status().annotate(file);
  return text;
}

Result<std::string> read_tokenizer_file_in(Io& io, const std::string& folder, const std::string& name,
                                           std::uint64_t limit_bytes) {
  STRATA_TRY_ASSIGN(const std::string path, file_in_hf_folder(folder, name));
  return read_tokenizer_file(io, path, limit_bytes);
}

}  // namespace strata
