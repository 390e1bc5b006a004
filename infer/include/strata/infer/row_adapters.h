#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/graph/passes.h>
#include <strata/model/adapter/peft_folder.h>
#include <strata/session/state_piece.h>

namespace strata {

/// The values of the options --adapter and --default-adapter of a command.
struct AdapterArguments {
  std::vector<std::string> adapters;  ///< "NAME=DIR", or one "DIR"
  std::string default_adapter;        ///< for texts that do not choose; empty: see RowAdapters::choose()
};

/// An adapter that texts choose by its name, in a folder of PEFT.
struct NamedFolder {
  std::string name, path;
};
struct AdapterFolders {
  std::string only;                ///< the folder of an adapter without a name, which is part of the model
  std::vector<NamedFolder> named;  ///< or these; both are empty if there is none
};
/// Errors: `invalid`, all problems at once: a name that is empty, taken or has other characters than letters,
/// digits, '.', '_' and '-'; a folder without a name beside others.
Result<AdapterFolders> adapter_folders(std::span<const std::string> arguments, Io& io);

/// Low-rank adapters over one frozen model, of which each text of a batch goes through one or none
/// (add_lora_rows). Immutable; read() from one thread at a time.
class RowAdapters {
 public:
  /// Opens the folders. Errors: of all folders at once, those of PeftFolder::open(), and `unsupported` for
  /// other methods than LoRA, and for DoRA; `invalid` for a default that is not among them.
  static Result<std::unique_ptr<RowAdapters>> open(Io& io, const std::vector<NamedFolder>& folders,
                                                   const std::string& default_adapter,
                                                   const DecoderConfig& config);
  std::size_t size() const noexcept { return adapters_.size(); }
  /// The number of the adapter that a text chooses: by its name; the model itself (-1) by an empty name; if
  /// it does not choose, the default, or else the only adapter if there is one, or else the model itself.
  /// Errors: `invalid` for a name that is not loaded.
  Result<std::int32_t> choose(const std::optional<std::string>& name) const;
  /// Empty for the model itself.
  std::string_view name(std::int32_t adapter) const noexcept;
  std::vector<NamedLora> loras() const;
  /// Reads the values of a piece and returns true if it is of one of the adapters. Errors: those of
  /// PeftFolder::read_part().
  Result<bool> read(const StatePiece& piece, std::span<float> values) const;

 private:
  struct Adapter {
    std::string name;
    std::unique_ptr<PeftFolder> folder;
  };
  RowAdapters() = default;
  std::int32_t find(std::string_view name) const noexcept;

  std::vector<Adapter> adapters_;
  std::int32_t default_ = -1;
};

}  // namespace strata
