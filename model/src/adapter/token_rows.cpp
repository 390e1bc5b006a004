#include <algorithm>
#include <optional>
#include <set>

#include <strata/model/adapter/lora.h>
#include <strata/runtime/str.h>

#include "adapter/choose_modules.h"
#include "adapter/module_names.h"

namespace strata {
namespace {

constexpr const char* kEmbedding = "tokens.weight";

class TokenChooser {
 public:
  TokenChooser(const DecoderConfig& config, const LoraSettings& settings, std::string_view section)
      : config_(config), settings_(settings), section_(section), tensors_(hf_tensors(config)) {
    bool has_head = false;
    for (const HfTensor& tensor : tensors_) {
      if (tensor.param == kEmbedding) embedding_ = module_of(tensor.name);
      if (tensor.param == "head.weight") head_ = module_of(tensor.name);
      has_head = has_head || tensor.param == "head.weight" || tensor.param == "score.weight";
    }
    is_tied_ = !has_head;
    if (is_tied_) head_ = module_of(hf_head_name());
  }

  Result<std::vector<TokenTarget>> run() {
    for (const TrainedTokens& tokens : settings_.tokens) add(tokens);
    // PEFT: a tied head has the embedding's rows, unless it is named with others.
    const bool is_one =
        is_tied_ && of_embedding_ != nullptr && (of_head_ == nullptr || of_head_->ids == of_embedding_->ids);
    std::vector<TokenTarget> targets;
    if (of_embedding_ != nullptr) targets.push_back(target(embedding_, *of_embedding_, true, is_one));
    if (of_head_ != nullptr && !is_one) targets.push_back(target(head_, *of_head_, false, true));
    STRATA_TRY_ASSIGN(const std::vector<LoraTarget> adapted, lora_targets(config_, settings_, section_));
    for (const TokenTarget& each : targets) check_module(each.module, adapted);
    if (problems_.empty()) return targets;
    return Status::error(Code::invalid, str(section_, ":", problems_));
  }

 private:
  static std::string module_of(std::string_view tensor) {
    return std::string(tensor.substr(0, tensor.rfind('.')));
  }
  const char* key() const {
    return section_ == detail::kPeftSection ? "trainable_token_indices" : "trainable_tokens";
  }
  TokenTarget target(const std::string& module, const TrainedTokens& tokens, bool in_embedding,
                     bool in_head) const {
    const bool of_table = in_embedding || is_tied_;
    return {module,
            {of_table ? kEmbedding : "head.weight", in_embedding ? "tokens" : "head", tokens.ids,
             in_embedding, in_head},
            config_.hidden};
  }
  /// PEFT takes every module whose name ends so.
  bool is_embedding(const std::string& name) const { return name.empty() || embedding_.ends_with(name); }
  bool is_head(const std::string& name) const { return !name.empty() && head_.ends_with(name); }
  bool is_other(const std::string& name) const {
    return !name.empty() && std::any_of(tensors_.begin(), tensors_.end(), [&](const HfTensor& tensor) {
      const std::string module = module_of(tensor.name);
      return module != embedding_ && module != head_ && detail::has_saved_module(tensor.name, name);
    });
  }
  void add(const TrainedTokens& tokens) {
    const std::string shown = tokens.module.empty() ? "" : str(" of '", tokens.module, "'");
    const bool of_embedding = is_embedding(tokens.module), of_head = is_head(tokens.module);
    if (of_embedding == of_head || is_other(tokens.module)) {
      problems_ += str("\n  ", key(), shown, ": the token embedding, ", embedding_,
                       head_.empty() ? "" : " and the head, " + head_, ", have tokens; this names ",
                       of_embedding || of_head || is_other(tokens.module) ? "other modules" : "no module");
      return;
    }
    const TrainedTokens*& of = of_embedding ? of_embedding_ : of_head_;
    if (of != nullptr)
      problems_ += str("\n  ", key(), shown, ": ", of_embedding ? embedding_ : head_, " is named twice");
    of = &tokens;
    if (tokens.ids.empty()) problems_ += str("\n  ", key(), shown, " names no token");
    std::set<std::int64_t> seen;
    for (const std::int64_t id : tokens.ids) {
      if (id < 0 || id >= config_.vocab)
        problems_ +=
            str("\n  ", key(), shown, " has ", id, "; the model has tokens 0 to ", config_.vocab - 1);
      if (!seen.insert(id).second) problems_ += str("\n  ", key(), shown, " has ", id, " twice");
    }
  }
  void check_module(const std::string& module, const std::vector<LoraTarget>& adapted) {
    if (std::any_of(adapted.begin(), adapted.end(),
                    [&](const LoraTarget& target) { return target.module == module; }))
      problems_ += str("\n  ", key(), ": ", module, " has an adapter, too; PEFT can do only one of both");
    for (const std::string& name : settings_.save)
      if (detail::has_saved_module(module + ".weight", name))
        problems_ += str("\n  ", key(), ": '", name, "' lets all of ", module,
                         " be trained, too; PEFT can do only one of both");
  }

  const DecoderConfig& config_;
  const LoraSettings& settings_;
  const std::string_view section_;
  const std::vector<HfTensor> tensors_;
  std::string embedding_, head_;
  bool is_tied_ = false;
  const TrainedTokens *of_embedding_ = nullptr, *of_head_ = nullptr;
  std::string problems_;
};

}  // namespace

Result<std::vector<TokenTarget>> token_targets(const DecoderConfig& config, const LoraSettings& settings,
                                               std::string_view section) {
  if (settings.tokens.empty()) return std::vector<TokenTarget>{};
  return TokenChooser(config, settings, section).run();
}

void replace_token_rows(const TokenRows& of, std::int64_t columns, std::span<const float> rows,
                        std::span<float> matrix) {
  for (std::size_t i = 0; i < of.tokens.size(); ++i)
    std::copy_n(rows.begin() + static_cast<std::int64_t>(i) * columns, columns,
                matrix.begin() + of.tokens[i] * columns);
}

}  // namespace strata
