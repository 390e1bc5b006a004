#include <strata/engine/checkpoint.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include <unistd.h>

#include <fmt/format.h>

#include <strata/runtime/digest.h>
#include <strata/runtime/safetensors.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".unfinished-";
constexpr std::string_view kManifest = "manifest.json";
constexpr std::uint64_t kManifestLimit = 16 << 20;

std::string file_of(Payload payload) { return str(to_string(payload), ".safetensors"); }

std::optional<std::int64_t> step_of(const std::string& name) {
  if (name.rfind(kPrefix, 0) != 0) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  return step;
}

// Steps that have a folder, ascending.
Result<std::vector<std::pair<std::int64_t, std::string>>> folders(Io& io, const std::string& dir) {
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io.list(dir));
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (const std::string& name : names)
    if (const auto step = step_of(name)) found.emplace_back(*step, dir + "/" + name);
  std::sort(found.begin(), found.end());
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

Result<CheckpointFile> write_payload(Engine& engine, Io& io, const std::string& folder, Payload payload) {
  const std::string name = file_of(payload);
  STRATA_TRY_ASSIGN(
      const auto writer,
      SafetensorsWriter::create(io, folder + "/" + name, specs_in_layout_order(engine.plan(), payload),
                                {{"payload", std::string(to_string(payload))}}));
  STRATA_TRY(engine.visit(payload, [&](const StatePiece&, std::span<const float> values) {
    return writer->append(std::as_bytes(values));
  }));
  STRATA_TRY(writer->finish());
  return CheckpointFile{name, writer->file_bytes(), writer->digest_hex()};
}

Status write_folder(Engine& engine, Io& io, const std::string& folder,
                    std::map<std::string, std::string> run) {
  STRATA_TRY(io.make_dirs(folder));
  Manifest manifest;
  manifest.step = engine.steps();
  manifest.loss_scale = engine.loss_scale();
  manifest.run = std::move(run);
  for (const Payload payload : engine.plan().states()) {
    STRATA_TRY_ASSIGN(CheckpointFile file, write_payload(engine, io, folder, payload));
    manifest.files.push_back(std::move(file));
  }
  return write_text_atomically(io, folder + "/" + std::string(kManifest),
                               to_json(manifest));  // syncs the folder too
}

// After a commit: older ones beyond `keep` (never the one just `saved`), and folders that a killed process
// left half-written.
Status tidy(Io& io, const std::string& dir, int keep, const std::string& saved) {
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io.list(dir));
  for (const std::string& name : names)
    if (name.rfind(kUnfinished, 0) == 0) STRATA_TRY(io.remove_all(dir + "/" + name));
  if (keep <= 0) return Status::ok();
  STRATA_TRY_ASSIGN(const auto found, folders(io, dir));
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < found.size(); ++i)
    if (found[i].second != saved) STRATA_TRY(io.remove_all(found[i].second));
  return Status::ok();
}

Status check_digests(Io& io, const std::string& folder, const Manifest& manifest,
                     std::span<const Payload> needed) {
  std::string problems;
  for (const CheckpointFile& file : manifest.files) {
    const auto found = digest_file(io, folder + "/" + file.name);
    if (!found.has_value()) {
      problems += str("\n  ", file.name, ": ", found.status().message());
    } else if (const std::string digest = to_hex(found->digest); digest != file.digest) {
      problems += str("\n  ", file.name, ": its digest is ", digest, ", the manifest says ", file.digest);
    }
  }
  for (const Payload payload : needed)
    if (std::none_of(manifest.files.begin(), manifest.files.end(),
                     [&](const CheckpointFile& f) { return f.name == file_of(payload); }))
      problems += str("\n  ", file_of(payload), " is not in the manifest");
  return problems.empty()
             ? Status::ok()
             : Status::error(Code::corrupt, str("checkpoint ", folder, " is damaged:", problems));
}

// Puts the draft in the target's place. A whole checkpoint of the same step is never absent in between,
// unless its bits differ: then it steps aside and comes back if the draft cannot take its place.
Status publish(Io& io, const std::string& draft, const std::string& target) {
  if (!io.exists(target)) return io.rename(draft, target);
  STRATA_TRY_ASSIGN(const Manifest fresh, read_manifest(io, draft));
  const Result<Manifest> old = read_manifest(io, target);
  const bool whole = old.has_value() && check_digests(io, target, *old, {}).is_ok();
  if (whole && old->step == fresh.step && old->files == fresh.files) {
    STRATA_TRY(write_text_atomically(io, target + "/" + std::string(kManifest), to_json(fresh)));
    (void)io.remove_all(draft);  // or by the next tidying, as below
    return Status::ok();
  }
  const std::string aside = draft + ".replaced";
  STRATA_TRY(io.rename(target, aside));
  Status status = io.rename(draft, target);
  if (!status.is_ok()) {
    (void)io.rename(aside, target);
    return status;
  }
  (void)io.remove_all(aside);
  return Status::ok();
}

}  // namespace

Result<std::string> save_checkpoint(Engine& engine, Io& io, const std::string& dir,
                                    std::map<std::string, std::string> run, int keep) {
  const std::string name = fmt::format("{}{:08}", kPrefix, engine.steps());
  const std::string target = dir + "/" + name;
  const std::string draft = fmt::format("{}/{}{}-{}", dir, kUnfinished, name, ::getpid());
  const auto attempt = [&]() -> Status {
    STRATA_TRY(io.make_dirs(dir));
    if (io.exists(draft)) STRATA_TRY(io.remove_all(draft));
    STRATA_TRY(write_folder(engine, io, draft, std::move(run)));
    STRATA_TRY(publish(io, draft, target));
    return io.sync_dir(dir);
  };
  Status status = attempt();
  if (!status.is_ok()) {
    (void)io.remove_all(draft);
    return std::move(status).annotate(str("saving checkpoint ", target));
  }
  STRATA_TRY(
      tidy(io, dir, keep, target).annotate(str("checkpoint ", target, " is saved; removing older ones")));
  return target;
}

Result<Manifest> read_manifest(Io& io, const std::string& folder) {
  const std::string path = folder + "/" + std::string(kManifest);
  auto text = read_text(io, path, kManifestLimit);
  if (!text.has_value()) return text.status();
  auto manifest = manifest_from_json(*text);
  if (!manifest.has_value()) return manifest.status().annotate(path);
  return manifest;
}

Result<std::string> newest_checkpoint(Io& io, const std::string& dir) {
  STRATA_TRY_ASSIGN(std::vector<std::string> whole, whole_checkpoints(io, dir));
  return std::move(whole.front());
}

Result<std::vector<std::string>> whole_checkpoints(Io& io, const std::string& dir) {
  std::string looked_at;
  std::vector<std::string> whole;
  auto found = folders(io, dir);
  if (!found.has_value())
    return Status::error(Code::not_found, str("no checkpoint in ", dir, ": ", found.status().message()));
  for (auto at = found->rbegin(); at != found->rend(); ++at) {
    const auto manifest = read_manifest(io, at->second);
    Status status = manifest.status();
    for (const CheckpointFile& file :
         manifest.has_value() ? manifest->files : std::vector<CheckpointFile>{}) {
      const auto opened = io.open(at->second + "/" + file.name, OpenMode::read);
      const auto size = opened.has_value() ? (*opened)->size() : Result<std::uint64_t>(opened.status());
      if (status.is_ok() && !size.has_value()) status = size.status();
      if (status.is_ok() && *size != file.bytes)
        status = Status::error(Code::corrupt,
                               str(file.name, " has ", *size, " bytes, the manifest says ", file.bytes));
    }
    if (status.is_ok())
      whole.push_back(at->second);
    else
      looked_at += str("\n  ", at->second, ": ", status.message());
  }
  if (!whole.empty()) return whole;
  return Status::error(looked_at.empty() ? Code::not_found : Code::corrupt,
                       str("no whole checkpoint in ", dir, looked_at));
}

namespace {

Status check_tensors(const RunPlan& plan, const SafetensorsFile& file, const std::string& path,
                     Payload payload) {
  std::string problems;
  const std::vector<TensorSpec> wanted = specs_in_layout_order(plan, payload);
  for (const TensorSpec& spec : wanted) {
    const SafetensorsEntry* entry = file.find(spec.name);
    if (entry == nullptr) {
      problems += str("\n  ", spec.name, " is missing");
    } else if (entry->shape != spec.shape || entry->dtype != spec.dtype) {
      problems +=
          str("\n  ", spec.name, " is ", entry->dtype, " [", fmt::format("{}", fmt::join(entry->shape, ", ")),
              "], the model has ", spec.dtype, " [", fmt::format("{}", fmt::join(spec.shape, ", ")), "]");
    }
  }
  if (file.entries().size() > wanted.size())
    problems += str("\n  it has ", file.entries().size(), " tensors, the model ", wanted.size());
  if (problems.empty()) return Status::ok();
  return Status::error(
      Code::invalid,
      str(path,
          payload == Payload::param ? " is of another model:"
                                    : " is of a run that trains other parameters, or of another model:",
          problems));
}

}  // namespace

Result<Manifest> load_checkpoint(Engine& engine, Io& io, const std::string& folder) {
  STRATA_TRY_ASSIGN(Manifest manifest, read_manifest(io, folder));
  const std::span<const Payload> states = engine.plan().states();
  STRATA_TRY(check_digests(io, folder, manifest, states));
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  for (const Payload payload : states) {
    const std::string path = folder + "/" + file_of(payload);
    STRATA_TRY_ASSIGN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::open(io, path));
    STRATA_TRY(check_tensors(engine.plan(), *file, path, payload));
    files.push_back(std::move(file));
  }
  for (std::size_t p = 0; p < states.size(); ++p)
    STRATA_TRY(engine.fill(states[p], [&](const StatePiece& piece, std::span<float> values) {
      return files[p]->read_range(*files[p]->find(piece.name),
                                  static_cast<std::uint64_t>(piece.offset) * sizeof(float),
                                  std::as_writable_bytes(values));
    }));
  engine.set_steps(manifest.step);
  if (engine.plan().scales_loss()) engine.set_loss_scale(manifest.loss_scale);
  return manifest;
}

}  // namespace strata
