#include "run/run_files.h"

#include <string_view>

#include <strata/config/train_config.h>
#include <strata/text/chat.h>
#include <strata/model/hf/config.h>
#include <strata/model/hf/model_files.h>
#include <strata/model/hf/other_parts.h>
#include <strata/text/text_markers.h>
#include <strata/runtime/str.h>
#include <strata/train/resume.h>
#include <strata/train/run_folder.h>
#include <strata/train/start_notes.h>

#include <strata/config/run_paths.h>
#include <strata/config/run_layout.h>
#include <strata/config/model_choice.h>

namespace strata {
namespace {

// The chat template of the run's conversations as Jinja. A run that has none keeps its tokenizer's own, for
// what is exported.
std::string chat_jinja(const TrainConfig& config, const TrainingData& training_data) {
  const ChatChoice& choice = config.data.chosen_chat;
  if (!choice.chat.has_value()) return choice.jinja;
  return choice.jinja.empty() && !training_data.has_conversations() ? std::string() : choice.chat->jinja();
}

// The markers of the run's texts. A model that learns from conversations learns to end its turns.
TextMarkers learned_markers(const TrainConfig& config, const TrainingData& training_data) {
  const Tokenizer& tokenizer = training_data.tokenizer();
  TextMarkers markers = tokenizer.markers();
  const Result<ChatTemplate>& chat = config.data.chosen_chat.chat;
  if (!training_data.has_conversations() || !chat.has_value()) return markers;
  const std::vector<std::int32_t> ends = answer_ends(tokenizer, *chat);
  for (const std::int32_t id : ends) markers.add_end(id);
  if (!ends.empty() && ends.front() != markers.end) markers.turn_end = ends.front();
  return markers;
}

}  // namespace

Result<std::map<std::string, std::string>> run_files(const TrainConfig& config,
                                                     const TrainingData& training_data, bool resumes,
                                                     Io& io) {
  constexpr std::uint64_t kLimit = std::uint64_t{64} << 20;
  std::map<std::string, std::string> files = {{"tokenizer.json", training_data.tokenizer().to_json()}};
  if (std::string jinja = chat_jinja(config, training_data); !jinja.empty())
    files[kChatTemplateFile] = std::move(jinja);
  files[kTextMarkersFile] = text_markers_json(learned_markers(config, training_data));
  if (resumes || config.model.from.empty()) return files;
  // The other files describe the tokenizer, so they are copied only if the run uses the model's own.
  const std::string tokenizer = tokenizer_source(config);
  const bool own_tokenizer =
      tokenizer == config.model.from || tokenizer == config.model.from + "/tokenizer.json";
  for (const char* name : kBaseFiles)
    if (const std::string path = str(config.model.from, "/", name);
        model_file_exists(io, path) && (own_tokenizer || std::string_view(name) == "config.json")) {
      STRATA_TRY_ASSIGN(files[str("base/", name)], read_model_file(io, path, kLimit));
    }
  if (const auto copy = files.find("base/config.json");
      copy != files.end() && unties_head(config, copy->second))
    copy->second = with_tied_head(copy->second, false);
  if (const auto copy = files.find("base/config.json");
      copy != files.end() && decoder_config(config).experts.stacked_files)
    copy->second = with_stacked_experts(copy->second);
  STRATA_TRY_ASSIGN(const std::optional<OtherParts> others, digest_other_parts(io, config.model.from));
  if (others) files[kOtherPartsFile] = other_parts_json(*others);
  return files;
}

}  // namespace strata
