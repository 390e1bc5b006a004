#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <strata/runtime/config/json_problem.h>
#include <strata/runtime/str.h>

namespace strata {

/// Empties a tree of nlohmann's without allocating memory. Its own destructor moves children to a vector, so
/// that the process ends if there is no memory for that: a destructor cannot throw.
template <class Json>
void dismantle_json(Json& value) noexcept {
  if (value.is_structured())
    for (Json& inner : value) dismantle_json(inner);
  if (value.is_object())
    value.template get_ref<typename Json::object_t&>().clear();
  else if (value.is_array())
    value.template get_ref<typename Json::array_t&>().clear();
}

/// Owns a tree that is built in place, or read. Trees are at most `kMaxDepth` deep.
template <class Json>
class JsonTree {
 public:
  static constexpr std::size_t kMaxDepth = 64;

  JsonTree() = default;
  explicit JsonTree(Json value) : root(std::move(value)) {}
  JsonTree(JsonTree&& other) noexcept : root(std::exchange(other.root, Json())) {}
  JsonTree& operator=(JsonTree&&) = delete;
  ~JsonTree() { dismantle_json(root); }

  /// Reads a text. Returns what is wrong with it, empty if nothing is.
  std::string read(std::string_view text, bool ignore_comments = false) {
    Builder builder(root);
    (void)Json::sax_parse(text.begin(), text.end(), &builder, Json::input_format_t::json, true,
                          ignore_comments);
    return std::move(builder.problem);
  }

  Json root;

 private:
  /// nlohmann's own builder destroys what it has built if there is no memory to go on.
  class Builder final : public Json::json_sax_t {
   public:
    explicit Builder(Json& root) : at_(&root) {}
    std::string problem;

    bool null() override { return put(nullptr); }
    bool boolean(bool value) override { return put(value); }
    bool number_integer(typename Json::number_integer_t value) override { return put(value); }
    bool number_unsigned(typename Json::number_unsigned_t value) override { return put(value); }
    bool number_float(typename Json::number_float_t value, const std::string&) override { return put(value); }
    bool string(std::string& value) override { return put(std::move(value)); }
    bool binary(typename Json::binary_t&) override { return false; }  // not in text
    bool start_object(std::size_t) override { return open(Json::object()); }
    bool start_array(std::size_t) override { return open(Json::array()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(std::string& name) override {
      if (open_.back()->contains(name)) {
        problem = str("the key '", name, "' is there twice");
        return false;
      }
      make_room(open_.back()->template get_ref<typename Json::object_t&>());
      at_ = &(*open_.back())[name];
      return true;
    }
    bool parse_error(std::size_t, const std::string&, const typename Json::exception& error) override {
      problem = json_problem(error.what());
      return false;
    }

   private:
    // An ordered object is a vector whose values are copied when it grows, and the old ones destroyed.
    template <class Object>
    static void make_room(Object& object) {
      if constexpr (requires { object.capacity(); }) {
        if (object.size() < object.capacity()) return;
        Object larger;
        larger.reserve(2 * object.size() + 8);
        for (auto& [name, value] : object) larger.emplace(name, std::move(value));
        object.swap(larger);
      }
    }
    // The place of the next value: the root, the one of a key, or a new one at the end of an array.
    template <class T>
    bool put(T&& value) {
      if (!open_.empty() && open_.back()->is_array()) at_ = &open_.back()->emplace_back();
      *at_ = std::forward<T>(value);
      return true;
    }
    bool open(Json&& empty) {
      if (open_.size() == kMaxDepth) {
        problem = str("it is nested more than ", kMaxDepth, " deep");
        return false;
      }
      put(std::move(empty));
      open_.push_back(at_);
      return true;
    }
    bool close() {
      open_.pop_back();
      return true;
    }
    Json* at_;
    std::vector<Json*> open_;
  };
};

}  // namespace strata
