#include "loop/start/match_checkpoint.h"

#include <map>

#include <strata/config/decide.h>
#include <strata/config/key_facts.h>
#include <strata/config/load_config.h>
#include <strata/runtime/str.h>
#include <strata/session/checkpoint.h>
#include <strata/train/resume.h>
#include <strata/train/run_folder.h>
#include <strata/train/run_identity.h>
#include <strata/profile/compute_device.h>
#include <strata/config/run_checkpoints.h>
#include <strata/config/run_layout.h>

#include <strata/plan/gemm_choice.h>

namespace strata {

Result<std::vector<std::string>> checkpoints_to_resume(const RunRequest& request, const TrainConfig& config,
                                                       const std::string& path, Io& io, Observer& observer) {
  if (!request.resume.empty()) STRATA_TRY(clear_drafts(io, checkpoint_dir(config, path)));
  auto found = list_checkpoints(config, path, io, [&](std::string_view text) { observer.on_warning(text); });
  if (!request.resume.empty()) {
    if (!found.has_value())
      return found.status().annotate(
          str("to start from the beginning, remove ", checkpoint_dir(config, path)));
    return found;
  }
  // Checkpoints of another run in this folder could pass for newer ones, and ours would be removed as the
  // oldest. Those of a run that is overwritten are removed with it.
  const bool goes = config.checkpoint.dir.empty() && request.overwrite && is_run_folder(io, path);
  if (!goes && (!found.has_value() || !found->empty()))
    return Status::error(Code::invalid, str(config.checkpoint.dir.empty() ? "" : "checkpoint.dir = ",
                                            checkpoint_dir(config, path),
                                            " contains checkpoints of another run; name an empty folder"));
  return std::vector<std::string>();
}

bool is_finished(const Manifest& manifest, const TrainConfig& config, const std::string& path, Io& io) {
  if (manifest.step < config.train.steps || !io.exists(path + "/summary.json")) return false;
  const auto summary = read_text(io, path + "/summary.json", 1 << 20);
  return summary.has_value() && summary->find("\"stop_reason\": \"finished\"") != std::string::npos;
}

namespace {

std::string implementation_in(const std::map<std::string, std::string>& run) {
  const auto found = run.find(std::string(kGemmImplementation));
  return found == run.end() ? std::string("the CPU in f32") : found->second;
}

}  // namespace

Status match_checkpoint(const std::string& checkpoint, const Manifest& manifest,
                        const TrainingData& training_data, const std::string& path, LoadedConfig& loaded,
                        Io& io, Log& log) {
  if (const auto implementation = manifest.run.find(std::string(kGemmImplementation));
      implementation != manifest.run.end())
    STRATA_TRY(resolve_bf16_gemm_as(implementation->second, loaded));
  if (constexpr const char* kKey = "train.attention_backend";
      loaded.config.train.attention_backend == "auto") {
    const auto saved = manifest.run.find(kKey);
    decide(loaded, kKey, saved != manifest.run.end() ? saved->second : std::string(former_value(kKey)),
           "what the checkpoint was made with");
  }
  const TrainConfig& config = loaded.config;
  const auto identity = run_identity(config, training_data);
  STRATA_TRY(check_identity(manifest.run, identity).annotate(checkpoint));
  if (const auto steps = manifest.run.find(std::string(kScheduleSteps));
      steps != manifest.run.end() && steps->second != identity.at(std::string(kScheduleSteps)))
    log.warn("train.steps was ", steps->second, " and is ", config.train.steps,
             ": from here on the learning rate follows another schedule");
  const std::string then = implementation_in(manifest.run), now = implementation_in(identity);
  if (then != now)
    log.warn("GEMM implementation: ", then, " in the run of the checkpoint, ", now, " in this run",
             "; from here on results are not bit for bit those of an uninterrupted run");
  if (config.memory.backend != "cuda") return {};
  const std::string file = str(path, "/", kGemmAlgorithmsFile);
  STRATA_TRY_ASSIGN(const bool same, load_gemm_algorithms(file, now, io));
  if (!same)
    log.warn(file, " was not written for ", now,
             ": GEMM algorithms are selected again, and results may differ in bits");
  return {};
}

}  // namespace strata
