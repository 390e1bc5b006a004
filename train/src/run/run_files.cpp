#include "run/run_files.h"

#include <string_view>

#include <strata/model/chat.h>
#include <strata/runtime/str.h>
#include <strata/train/resume.h>
#include <strata/train/run_folder.h>

#include "run/run_paths.h"

namespace strata {
namespace {

// The chat template of the run's conversations as Jinja: the tokenizer's own if it has the chosen format,
// otherwise a template generated for the format.
std::string chat_jinja(const TrainConfig& config, const TrainingData& training_data) {
  const auto& [chosen, why, own] = config.data.chosen_chat;
  const Result<ChatTemplate> known = detect_chat_template(own);
  if (!chosen.has_value() || (known.has_value() && known->format == chosen->format)) return own;
  return own.empty() && !training_data.has_conversations() ? std::string() : chat_template_jinja(*chosen);
}

}  // namespace

Result<std::map<std::string, std::string>> run_files(const TrainConfig& config,
                                                     const TrainingData& training_data, bool resumes,
                                                     Io& io) {
  constexpr std::uint64_t kLimit = std::uint64_t{64} << 20;
  std::map<std::string, std::string> files = {{"tokenizer.json", training_data.tokenizer().to_json()}};
  if (std::string jinja = chat_jinja(config, training_data); !jinja.empty())
    files["chat_template.jinja"] = std::move(jinja);
  if (resumes || config.model.from.empty()) return files;
  // The other files describe the tokenizer, so they are copied only if the run uses the model's own.
  const std::string tokenizer = tokenizer_source(config);
  const bool own_tokenizer =
      tokenizer == config.model.from || tokenizer == config.model.from + "/tokenizer.json";
  for (const char* name : kBaseFiles)
    if (const std::string path = str(config.model.from, "/", name);
        io.exists(path) && (own_tokenizer || std::string_view(name) == "config.json")) {
      STRATA_TRY_ASSIGN(files[str("base/", name)], read_text(io, path, kLimit));
    }
  return files;
}

}  // namespace strata
