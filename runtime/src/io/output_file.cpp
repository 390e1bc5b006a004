#include <strata/runtime/io/output_file.h>

#include <algorithm>
#include <filesystem>

#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

namespace fs = std::filesystem;

// The beginning of a regular file.
Result<std::string> head_of(const std::string& path) {
  constexpr std::uint64_t kHead = 4096;
  STRATA_TRY_ASSIGN(const auto file, posix_io().open(path, OpenMode::read));
  STRATA_TRY_ASSIGN(const std::uint64_t size, file->size());
  std::string head(std::min(size, kHead), '\0');
  STRATA_TRY(read_exact(*file, 0, std::as_writable_bytes(std::span(head.data(), head.size()))));
  return head;
}

// Names the owner of a folder whose files have names of their own, such as "a run"; nullptr for any other
// folder.
const char* owner_of(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / "config.resolved.toml", error)) return "a run";
  if (fs::exists(folder / "config.json", error)) return "a model";
  return fs::exists(folder / "adapter_config.json", error) ? "an adapter" : nullptr;
}

}  // namespace

Status check_output(const OutputFile& output, const IsOwn& is_own) {
  const auto refused = [&](const std::string& why) {
    return Status::error(Code::invalid, str(output.option, " ", output.path, why));
  };
  std::error_code error;
  const fs::file_status found = fs::status(output.path, error);
  if (!fs::exists(found)) return {};
  for (const std::string& input : output.inputs)
    if (fs::equivalent(output.path, input, error) && !error)
      return refused(str(" is ", input, ", which is read; name another file"));
  if (fs::is_directory(found)) return refused(" is a folder; name a file");
  if (!fs::is_regular_file(found))
    return output.may_stream ? Status::ok() : refused(" is not a regular file, and would be replaced");
  const char* const owner = owner_of(fs::path(output.path).parent_path());
  STRATA_TRY_ASSIGN(const std::string head, head_of(output.path));
  if (owner != nullptr && (output.stands_alone || head.empty()))
    return refused(str(" is a file of ", owner, "; it is not replaced, name another file"));
  if (head.empty() || is_own(head)) return {};
  return refused(str(" exists and is not ", output.what, "; it is not replaced, name another file"));
}

}  // namespace strata
