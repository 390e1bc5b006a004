#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <strata/runtime/io/io.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

namespace strata::test {

/// A disk in memory that models power failures. Of whatever was not synced, a failure may lose any 512-byte
/// sectors of any file and any name changes in any directory, in any combination (a rename is one change).
/// This is harsher than real file systems, so code that survives here does not depend on any order that it
/// did not request. Used by one thread.
class SimDisk final : public Io {
 public:
  SimDisk() : root_(std::make_shared<Node>(true)) {}

  /// Makes the present contents durable.
  void make_durable() { make_durable(*root_); }
  /// The power fails at the `nth` modifying call from now on (counted from 1): it and all later ones fail and
  /// do nothing. 0: never.
  void cut_power_at(std::uint64_t nth) { cut_ = nth == 0 ? 0 : changes_ + nth; }
  bool is_cut() const { return cut_ != 0 && changes_ >= cut_; }
  /// The contents found after the power is back; the same for the same seed.
  std::unique_ptr<SimDisk> after_power_failure(std::uint64_t seed) const {
    auto disk = std::make_unique<SimDisk>();
    std::uint64_t draws = 0;
    disk->root_ = survivor(*root_, Rng(seed, 99), draws);
    return disk;
  }

  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode, bool = false) override {
    const auto [folder, name] = locate(path);
    NodePtr node = folder == nullptr ? nullptr : folder->child(name);
    if (mode == OpenMode::read || mode == OpenMode::read_no_follow) {
      if (node == nullptr || node->folder) return missing(path);
      return std::unique_ptr<File>(std::make_unique<SimFile>(*this, path, node));
    }
    if (folder == nullptr || (mode == OpenMode::update && node == nullptr)) return missing(path);
    if (mode == OpenMode::create && node != nullptr)
      return Status::error(Code::invalid, str(path, " exists already"));
    STRATA_TRY(change(path));
    if (node == nullptr) {
      node = std::make_shared<Node>(false);
      folder->apply({Change::link, name, "", node});
    }
    return std::unique_ptr<File>(std::make_unique<SimFile>(*this, path, node));
  }
  Status make_dirs(const std::string& path) override {
    NodePtr at = root_;
    for (const std::string& part : parts(path)) {
      NodePtr next = at->child(part);
      if (next == nullptr) {
        STRATA_TRY(change(path));
        next = std::make_shared<Node>(true);
        at->apply({Change::link, part, "", next});
      }
      at = next;
    }
    return Status::ok();
  }
  Status rename(const std::string& from, const std::string& to) override {
    const auto [folder, name] = locate(from);
    const auto [target, new_name] = locate(to);
    if (folder == nullptr || folder != target || folder->child(name) == nullptr) return missing(from);
    STRATA_TRY(change(to));
    folder->apply({Change::rename, name, new_name, nullptr});
    return Status::ok();
  }
  Status sync_dir(const std::string& path) override {
    const NodePtr node = find(path);
    if (node == nullptr) return missing(path);
    STRATA_TRY(change(path));
    node->durable_names = node->names;
    node->changes.clear();
    return Status::ok();
  }
  Status remove_all(const std::string& path) override {
    const auto [folder, name] = locate(path);
    if (folder == nullptr || folder->child(name) == nullptr) return Status::ok();
    STRATA_TRY(change(path));
    folder->apply({Change::unlink, name, "", nullptr});
    return Status::ok();
  }
  Result<std::vector<std::string>> list(const std::string& path) override {
    const NodePtr node = find(path);
    if (node == nullptr) return missing(path);
    std::vector<std::string> names;
    for (const auto& [name, child] : node->names) names.push_back(name);
    return names;
  }
  bool exists(const std::string& path) override { return find(path) != nullptr; }
  Result<std::uint64_t> free_bytes(const std::string&) override { return std::uint64_t{1} << 40; }

 private:
  static constexpr std::size_t kSector = 512;
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  struct Change {
    enum Kind : std::uint8_t { link, unlink, rename } kind;
    std::string name, to;
    NodePtr node;
  };
  using Names = std::map<std::string, NodePtr>;
  using Bytes = std::vector<std::byte>;

  static void apply_to(Names& names, const Change& change) {
    if (change.kind == Change::link) {
      names[change.name] = change.node;
    } else if (const auto at = names.find(change.name); at != names.end()) {
      const NodePtr node = at->second;
      names.erase(at);
      if (change.kind == Change::rename) names[change.to] = node;
    }
  }

  struct Node {
    explicit Node(bool is_folder) : folder(is_folder) {}
    NodePtr child(const std::string& name) const {
      const auto at = names.find(name);
      return at == names.end() ? nullptr : at->second;
    }
    void apply(Change change) {
      apply_to(names, change);
      changes.push_back(std::move(change));
    }
    const bool folder;
    Names names, durable_names;
    std::vector<Change> changes;  // changes since the names were synced
    Bytes bytes, durable_bytes;
  };

  class SimFile final : public File {
   public:
    SimFile(SimDisk& disk, std::string path, NodePtr node)
        : disk_(disk), path_(std::move(path)), node_(std::move(node)) {}
    Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override {
      const Bytes& bytes = node_->bytes;
      if (offset >= bytes.size()) return std::size_t{0};
      const std::size_t n = std::min(into.size(), bytes.size() - static_cast<std::size_t>(offset));
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), n, into.begin());
      return n;
    }
    Result<std::size_t> write_at(std::uint64_t offset, std::span<const std::byte> from) override {
      STRATA_TRY(disk_.change(path_));
      const std::size_t end = static_cast<std::size_t>(offset) + from.size();
      if (node_->bytes.size() < end) node_->bytes.resize(end);
      std::copy(from.begin(), from.end(), node_->bytes.begin() + static_cast<std::ptrdiff_t>(offset));
      return from.size();
    }
    Status sync() override {
      STRATA_TRY(disk_.change(path_));
      node_->durable_bytes = node_->bytes;
      return Status::ok();
    }
    Result<std::uint64_t> size() override { return std::uint64_t{node_->bytes.size()}; }
    Status allocate(std::uint64_t bytes) override {
      STRATA_TRY(disk_.change(path_));
      if (node_->bytes.size() < bytes) node_->bytes.resize(static_cast<std::size_t>(bytes));
      return Status::ok();
    }
    const std::string& path() const noexcept override { return path_; }
    bool direct() const noexcept override { return false; }
    DirectAlignment alignment() const noexcept override { return {}; }
    int descriptor() const noexcept override { return -1; }

   private:
    SimDisk& disk_;
    const std::string path_;
    const NodePtr node_;
  };

  Status change(const std::string& path) {
    if (!is_cut()) ++changes_;
    return is_cut() ? Status::error(Code::io_error, str(path, ": the power is gone")) : Status::ok();
  }
  static Status missing(const std::string& path) {
    return Status::error(Code::not_found, str(path, ": no such file or folder"));
  }
  static std::vector<std::string> parts(const std::string& path) {
    std::vector<std::string> found;
    for (std::size_t at = 0; at < path.size();) {
      const std::size_t end = std::min(path.find('/', at), path.size());
      if (end > at) found.push_back(path.substr(at, end - at));
      at = end + 1;
    }
    return found;
  }
  NodePtr find(const std::string& path) const {
    NodePtr at = root_;
    for (const std::string& part : parts(path))
      if (at != nullptr) at = at->child(part);
    return at;
  }
  std::pair<NodePtr, std::string> locate(const std::string& path) const {
    const std::size_t slash = path.find_last_of('/');
    return {slash == std::string::npos ? root_ : find(path.substr(0, slash)), path.substr(slash + 1)};
  }

  static void make_durable(Node& node) {
    node.durable_names = node.names;
    node.durable_bytes = node.bytes;
    node.changes.clear();
    for (const auto& [name, child] : node.names) make_durable(*child);
  }

  static NodePtr survivor(const Node& node, const Rng& rng, std::uint64_t& draws) {
    const auto kept = [&] { return rng.below(draws++, 2) == 0; };
    auto left = std::make_shared<Node>(node.folder);
    Names names = node.durable_names;
    for (const Change& change : node.changes)
      if (kept()) apply_to(names, change);
    for (const auto& [name, child] : names) left->names[name] = survivor(*child, rng, draws);
    const Bytes &old = node.durable_bytes, &fresh = node.bytes;
    left->bytes.resize(old.size() == fresh.size() || kept() ? fresh.size() : old.size());
    for (std::size_t at = 0; at < left->bytes.size(); at += kSector) {
      const Bytes& from = kept() ? fresh : old;  // past the end of the chosen version there are zeros
      const std::size_t end = std::min({at + kSector, left->bytes.size(), from.size()});
      for (std::size_t i = at; i < end; ++i) left->bytes[i] = from[i];
    }
    left->durable_names = left->names;
    left->durable_bytes = left->bytes;
    return left;
  }

  NodePtr root_;
  std::uint64_t changes_ = 0, cut_ = 0;
};

}  // namespace strata::test
