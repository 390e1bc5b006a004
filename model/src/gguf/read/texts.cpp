#include <strata/model/hf/model_files.h>

#include "gguf/read/model_file.h"

namespace strata {
namespace {

/// The GGUF file that "m.gguf/config.json" is in; empty if it is a file on disk.
std::string gguf_of(Io& io, const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {};
  std::string file = path.substr(0, slash);
  return detail::is_gguf_file(io, file) ? file : std::string();
}

}  // namespace

bool model_file_exists(Io& io, const std::string& path) {
  if (io.exists(path)) return true;
  const std::string file = gguf_of(io, path);
  return !file.empty() && detail::gguf_has_text(std::string_view(path).substr(file.size() + 1));
}

Result<std::string> read_model_file(Io& io, const std::string& path, std::uint64_t limit_bytes) {
  const std::string file = gguf_of(io, path);
  if (file.empty()) return read_text(io, path, limit_bytes);
  return detail::gguf_text(io, file, std::string_view(path).substr(file.size() + 1));
}

}  // namespace strata
