#include "checkpoint/task_state.h"

#include <algorithm>
#include <vector>

#include <strata/runtime/io/safetensors.h>
#include <strata/runtime/str.h>

#include "checkpoint/checkpoint_files.h"

namespace strata {
namespace {

constexpr const char* kTaskFile = "task.safetensors";

}  // namespace

Result<std::optional<CheckpointFile>> detail::write_task_state(Io& io, const std::string& folder,
                                                               const TaskState& task) {
  if (task.empty()) return std::optional<CheckpointFile>();
  std::vector<TensorSpec> specs;
  for (const auto& [name, bytes] : task) specs.push_back({name, "U8", {bytes.size()}});
  STRATA_TRY_ASSIGN(const auto writer, SafetensorsWriter::create(io, str(folder, "/", kTaskFile), specs));
  for (const auto& [name, bytes] : task)
    STRATA_TRY(writer->append(std::as_bytes(std::span(bytes.data(), bytes.size()))));
  STRATA_TRY(writer->finish());
  STRATA_TRY_ASSIGN(CheckpointFile file, describe_file(io, folder, kTaskFile));
  return std::optional(std::move(file));
}

Result<TaskState> read_task_state(Io& io, const std::string& folder, const Manifest& manifest) {
  TaskState task;
  const auto listed = std::find_if(manifest.files.begin(), manifest.files.end(),
                                   [](const CheckpointFile& file) { return file.name == kTaskFile; });
  if (listed == manifest.files.end()) return task;
  STRATA_TRY_ASSIGN(const CheckpointFile found, detail::describe_file(io, folder, kTaskFile));
  if (found != *listed)
    return Status::error(Code::corrupt, str(folder, "/", kTaskFile, " is damaged: its digest is ",
                                            found.digest, ", the manifest says ", listed->digest));
  STRATA_TRY_ASSIGN(const auto file, SafetensorsFile::open(io, str(folder, "/", kTaskFile)));
  for (const SafetensorsEntry& entry : file->entries()) {
    std::string& bytes = task[entry.name];
    bytes.resize(entry.bytes);
    STRATA_TRY(file->read(entry.name, std::as_writable_bytes(std::span(bytes.data(), bytes.size()))));
  }
  return task;
}

}  // namespace strata
