#include "checkpoint/checkpoint_files.h"

#include <algorithm>
#include <charconv>

#include <unistd.h>

#include <fmt/format.h>

#include <strata/engine/checkpoint.h>
#include <strata/runtime/str.h>

namespace strata {
namespace detail {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".unfinished-";
constexpr std::string_view kReplaced = ".replaced";
constexpr std::size_t kStepDigits = 8;

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// A name that save_checkpoint uses while it works: ".unfinished-step-00000012-4711", with ".replaced"
/// appended for a checkpoint moved aside.
struct Draft {
  std::string folder;  // name of the folder that it becomes
  bool replaced = false;
};
std::optional<Draft> draft_of(std::string_view name) {
  if (!name.starts_with(kUnfinished)) return std::nullopt;
  name.remove_prefix(kUnfinished.size());
  Draft draft;
  draft.replaced = name.ends_with(kReplaced);
  if (draft.replaced) name.remove_suffix(kReplaced.size());
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || !is_digits(name.substr(dash + 1))) return std::nullopt;
  draft.folder = name.substr(0, dash);
  if (!step_of(draft.folder)) return std::nullopt;
  return draft;
}

}  // namespace

std::string file_of(Payload payload) { return str(to_string(payload), ".safetensors"); }

std::string folder_name(std::int64_t step) { return fmt::format("{}{:0{}}", kPrefix, step, kStepDigits); }

std::string draft_name(const std::string& folder_name) {
  return fmt::format("{}{}-{}", kUnfinished, folder_name, ::getpid());
}

std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  std::int64_t step = 0;
  if (name.size() < kStepDigits || !is_digits(name)) return std::nullopt;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), step);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return step;
}

Result<std::vector<StepFolder>> step_folders(Io& io, const std::string& dir) {
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io.list(dir));
  std::vector<StepFolder> found;
  for (const std::string& name : names)
    if (const auto step = step_of(name)) found.push_back({*step, dir + "/" + name});
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

std::vector<TensorSpec> specs_in_layout_order(const RunPlan& plan, Payload payload) {
  std::vector<TensorSpec> specs;
  for (const ChunkInfo& chunk : plan.layout.chunks())
    for (const std::int32_t tensor : chunk.tensors) {
      if (!plan.holds(tensor, payload)) continue;
      TensorSpec spec{plan.tensors.specs[static_cast<std::size_t>(tensor)].name, "F32", {}};
      const Shape& shape = plan.shape_of_tensor[static_cast<std::size_t>(tensor)];
      for (int i = 0; i < shape.rank; ++i) spec.shape.push_back(static_cast<std::uint64_t>(shape.dim(i)));
      specs.push_back(std::move(spec));
    }
  return specs;
}

}  // namespace detail

Status clear_drafts(Io& io, const std::string& dir) {
  if (!io.exists(dir)) return {};
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io.list(dir));
  for (const std::string& name : names) {
    const auto draft = detail::draft_of(name);
    if (!draft) continue;
    const std::string path = dir + "/" + name, target = dir + "/" + draft->folder;
    if (draft->replaced && !io.exists(target))
      STRATA_TRY(io.rename(path, target));
    else
      STRATA_TRY(io.remove_all(path));
  }
  return {};
}

Status remove_checkpoints(Io& io, const std::string& dir) {
  if (!io.exists(dir)) return {};
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io.list(dir));
  std::size_t left = names.size();
  for (const std::string& name : names) {
    if (!detail::step_of(name) && !detail::draft_of(name)) continue;
    STRATA_TRY(io.remove_all(dir + "/" + name));
    --left;
  }
  return left == 0 ? io.remove_all(dir) : Status::ok();
}

Result<std::string> newest_checkpoint(Io& io, const std::string& dir) {
  STRATA_TRY_ASSIGN(std::vector<std::string> whole, complete_checkpoints(io, dir));
  return std::move(whole.front());
}

Status detail::check_files(Io& io, const std::string& folder, const Manifest& manifest) {
  for (const CheckpointFile& file : manifest.files) {
    STRATA_TRY_ASSIGN(const auto opened, io.open(folder + "/" + file.name, OpenMode::read));
    STRATA_TRY_ASSIGN(const std::uint64_t size, opened->size());
    if (size != file.bytes)
      return Status::error(Code::corrupt,
                           str(file.name, " has ", size, " bytes, the manifest says ", file.bytes));
  }
  return {};
}

namespace {

// Checks the manifest completely, and that its files exist with the right sizes.
Status check_complete(Io& io, const std::string& folder) {
  STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, folder));
  return detail::check_files(io, folder, manifest);
}

}  // namespace

Result<std::vector<std::string>> complete_checkpoints(Io& io, const std::string& dir,
                                                      const CheckpointWarning& warn) {
  auto found = detail::step_folders(io, dir);
  if (!found.has_value())
    return Status::error(Code::not_found, str("no checkpoint in ", dir, ": ", found.status().message()));
  std::string looked_at;
  std::vector<std::string> whole, passed_over;
  for (auto at = found->rbegin(); at != found->rend(); ++at) {
    if (const Status status = check_complete(io, at->path); !status.is_ok()) {
      looked_at += str("\n  ", at->path, ": ", status.message());
      if (whole.empty()) passed_over.push_back(str(at->path, " is damaged: ", status.message()));
    } else
      whole.push_back(at->path);
  }
  if (!whole.empty()) {
    for (const std::string& damaged : passed_over)
      if (warn) warn(str(damaged, "; using ", whole.front()));
    return whole;
  }
  return Status::error(looked_at.empty() ? Code::not_found : Code::corrupt,
                       str("no complete checkpoint in ", dir, looked_at));
}

}  // namespace strata
