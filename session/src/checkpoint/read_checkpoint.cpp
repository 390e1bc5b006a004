#include <strata/session/checkpoint.h>

#include <algorithm>
#include <new>

#include <strata/parallel/agree.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/io/safetensors_parts.h>
#include <strata/runtime/str.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_names.h"
#include "checkpoint/part_digests.h"
#include "checkpoint/task_state.h"

namespace strata {
namespace {

using detail::StepFolder;

/// One file of a draft, of which this rank writes its part.
struct DraftFile {
  Payload payload = Payload::param;
  detail::StoredTensors stored;
  std::unique_ptr<SafetensorsPartsWriter> writer;
};

// The first rank creates the files, and then the others open them.
Result<std::vector<DraftFile>> open_draft(const Session& session, Io& io, const std::string& folder,
                                          const Manifest& manifest, bool creates) {
  std::vector<DraftFile> files;
  for (const Payload payload : session.state_plan().states()) {
    DraftFile& file = files.emplace_back();
    file.payload = payload;
    file.stored = detail::stored_tensors(session.state_plan(), payload, manifest.frozen);
    const std::string path = folder + "/" + detail::file_of(payload);
    const std::map<std::string, std::string> metadata = {{"payload", std::string(to_string(payload))}};
    STRATA_TRY_ASSIGN(file.writer, creates
                                       ? SafetensorsPartsWriter::create(io, path, file.stored.specs, metadata)
                                       : SafetensorsPartsWriter::join(io, path, file.stored.specs, metadata));
  }
  return files;
}

// Writes this rank's part. A failed write is returned at the end: until then the rank takes part in what the
// ranks do together.
Result<CheckpointFile> write_payload(Session& session, DraftFile& file, VisitScope scope) {
  const StatePlan& plan = session.state_plan();
  detail::PartDigests digests(
      plan, session.world(), [&](ChunkId chunk) { return covers(scope, plan.layout.group_of(chunk).saved); });
  Status written;
  const auto write_run = [&](std::size_t tensor, std::int64_t at, std::span<const float> values) {
    if (written.is_ok())
      written = file.writer->write(static_cast<std::size_t>(file.stored.index_of[tensor]),
                                   static_cast<std::uint64_t>(at) * sizeof(float), std::as_bytes(values));
  };
  const bool is_shared = !plan.tensors.parts.empty();
  const auto write = [&](const StatePiece& piece, std::span<const float> values) {
    const auto tensor = static_cast<std::size_t>(piece.tensor);
    if (is_shared) {
      plan.tensors.parts[tensor].for_each_counted_run(
          piece.offset, std::ssize(values), [&](std::int64_t whole, std::int64_t own, std::int64_t n) {
            write_run(
                tensor, whole,
                values.subspan(static_cast<std::size_t>(own - piece.offset), static_cast<std::size_t>(n)));
          });
      return Status::ok();
    }
    write_run(tensor, piece.offset, values);
    digests.add(piece, values);
    return Status::ok();
  };
  STRATA_TRY(session.visit_part(file.payload, write, scope));
  if (!is_shared) STRATA_TRY(digests.finish());
  if (written.is_ok()) written = file.writer->sync();
  STRATA_TRY(agree(session.world(), written));
  CheckpointFile entry{detail::file_of(file.payload), file.writer->file_bytes(), {}, {}};
  if (is_shared) return entry;  // the file is digested once it is complete
  std::vector<Digest> in_order;
  for (const std::int32_t tensor : file.stored.tensors) {
    in_order.push_back(digests.of(tensor));
    entry.tensors.emplace(plan.tensors.specs[static_cast<std::size_t>(tensor)].name, to_hex(in_order.back()));
  }
  entry.digest = to_hex(detail::file_digest(file.writer->header_digest(), in_order));
  return entry;
}

// Removes the oldest checkpoints beyond `keep` of those up to the one just `saved`. Later ones are not of
// this run's history, which has gone back: they neither count nor go.
Status remove_oldest(Io& io, const std::string& dir, int keep, const std::string& saved) {
  if (keep <= 0) return Status::ok();
  STRATA_TRY_ASSIGN(std::vector<StepFolder> found, detail::step_folders(io, dir));
  const auto at =
      std::find_if(found.begin(), found.end(), [&](const StepFolder& of) { return of.path == saved; });
  if (at != found.end()) found.erase(at + 1, found.end());
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < found.size(); ++i)
    if (found[i].path != saved) STRATA_TRY(io.remove_all(found[i].path));
  return Status::ok();
}

// Moves the draft to the target's place. A complete checkpoint of the same step remains visible throughout,
// unless its bits differ: then it is moved aside, and back if the draft cannot take its place.
Status publish(Io& io, const std::string& draft, const std::string& target) {
  if (!io.exists(target)) return io.rename(draft, target);
  STRATA_TRY_ASSIGN(const Manifest fresh, read_manifest(io, draft));
  const Result<Manifest> old = read_manifest(io, target);
  if (old.has_value() && old->step == fresh.step && old->files == fresh.files &&
      check_digests(io, target, *old).is_ok()) {
    STRATA_TRY(write_text_atomically(io, target + "/" + std::string(detail::kManifestName), to_json(fresh)));
    (void)io.remove_all(draft);  // if this fails, the next save removes it
    return Status::ok();
  }
  const std::string aside = draft + ".replaced";
  STRATA_TRY(io.rename(target, aside));
  Status status = Status::heap_exhausted();
  try {
    status = io.rename(draft, target);
  } catch (const std::bad_alloc&) {  // the message of a failure can throw it
  }
  if (!status.is_ok()) {
    (void)io.rename(aside, target);
    return status;
  }
  (void)io.remove_all(aside);
  return Status::ok();
}

/// A checkpoint that is being saved, by all ranks together.
class Saving {
 public:
  Saving(Session& session, Io& io, const std::string& dir, const TaskState& task)
      : session_(session),
        io_(io),
        dir_(dir),
        task_(task),
        first_(session.world() == nullptr || session.world()->rank() == 0) {}

  const std::string& target() const noexcept { return target_; }

  Status run(std::map<std::string, std::string> run) {
    const std::string name = detail::folder_name(session_.steps());
    target_ = dir_ + "/" + name;
    // The name of the draft contains the process id of the first rank.
    STRATA_TRY_ASSIGN(draft_, from_first_rank(session_.world(), dir_ + "/" + detail::draft_name(name)));
    Status status;
    try {
      status = write(std::move(run));
    } catch (...) {  // the heap is exhausted
      if (first_) (void)io_.remove_all(draft_);
      throw;
    }
    if (!status.is_ok() && first_) (void)io_.remove_all(draft_);
    return status;
  }

 private:
  Status write(std::map<std::string, std::string> run) {
    Manifest manifest;
    manifest.frozen = session_.left_out();
    const std::vector<TraineeOptions>& trainees = session_.state_plan().options.trainees;
    for (std::size_t i = 0; i < trainees.size() && trainees.size() > 1; ++i) {
      const auto number = static_cast<std::int32_t>(i);
      manifest.trainees[trainees[i].name] = {session_.steps(number), session_.loss_scale(number)};
    }
    manifest.version = manifest.needed_version();
    std::vector<DraftFile> files;
    STRATA_TRY(agree(session_.world(), first_ ? create(files, manifest) : Status::ok()));
    STRATA_TRY(agree(session_.world(), first_ ? Status::ok() : join(files, manifest)));
    manifest.step = session_.steps();
    manifest.loss_scale = session_.loss_scale();
    for (std::size_t i = 0; const std::int64_t steps : session_.param_steps()) {
      const LayoutTensor& tensor = session_.state_plan().tensors.specs[i++];
      if (tensor.group.trainable && steps != manifest.step) manifest.param_steps[tensor.name] = steps;
    }
    manifest.run = std::move(run);
    const VisitScope scope = manifest.frozen.empty() ? VisitScope::all : VisitScope::saved;
    for (DraftFile& file : files) {
      STRATA_TRY_ASSIGN(CheckpointFile entry, write_payload(session_, file, scope));
      manifest.files.push_back(std::move(entry));
    }
    return agree(session_.world(), first_ ? finish(files, manifest) : Status::ok());
  }

  Status create(std::vector<DraftFile>& files, const Manifest& manifest) {
    STRATA_TRY(io_.make_dirs(dir_));
    STRATA_TRY(clear_drafts(io_, dir_));
    STRATA_TRY(io_.make_dirs(draft_));
    STRATA_TRY_ASSIGN(files, open_draft(session_, io_, draft_, manifest, true));
    return {};
  }

  Status join(std::vector<DraftFile>& files, const Manifest& manifest) {
    auto joined = open_draft(session_, io_, draft_, manifest, false);
    if (!joined.has_value() && joined.status().code() == Code::not_found)
      return Status::error(Code::io_error,
                           str(joined.status().message(), "; all ranks must see the folder of checkpoints"));
    STRATA_TRY_ASSIGN(files, std::move(joined));
    return {};
  }

  Status finish(std::vector<DraftFile>& files, Manifest& manifest) {
    for (DraftFile& file : files) {
      STRATA_TRY(file.writer->finish());
      file.writer.reset();
    }
    // No rank has seen whole tensors.
    if (!session_.state_plan().tensors.parts.empty())
      for (CheckpointFile& file : manifest.files) {
        STRATA_TRY_ASSIGN(file, detail::describe_file(io_, draft_, file.name));
      }
    STRATA_TRY_ASSIGN(auto task, detail::write_task_state(io_, draft_, task_));
    if (task) manifest.files.push_back(*std::move(task));
    STRATA_TRY(write_text_atomically(io_, draft_ + "/" + std::string(detail::kManifestName),
                                     to_json(manifest)));  // also syncs the folder
    STRATA_TRY(publish(io_, draft_, target_));
    return io_.sync_dir(dir_);
  }

  Session& session_;
  Io& io_;
  const std::string dir_;
  const TaskState& task_;
  const bool first_;
  std::string draft_, target_;
};

}  // namespace

Result<std::string> save_checkpoint(Session& session, Io& io, const std::string& dir,
                                    std::map<std::string, std::string> run, int keep, const TaskState& task) {
  Saving saving(session, io, dir, task);
  STRATA_TRY(saving.run(std::move(run)).annotate(str("saving checkpoint ", saving.target())));
  if (session.world() == nullptr || session.world()->rank() == 0)
    STRATA_TRY(remove_oldest(io, dir, keep, saving.target())
                   .annotate(str("checkpoint ", saving.target(), " is saved; removing older ones")));
  return saving.target();
}

}  // namespace strata
